// Package shop is an example of a shop that uses the API: a storefront with a basket, a
// payment page with Stripe's Payment Element and 3-D Secure, and a page with the result.
// docs/checkout.md explains it.
//
// # The life of a key
//
//  1. The key is created with the basket (saveBasket), so all tabs of a basket have it.
//  2. When the customer pays, the whole request is stored with it, including the card
//     (submit), and committed before the first attempt. Each attempt sends these bytes with
//     this key: that of a reload, of a second tab, or of Run after the customer has left.
//  3. A new key replaces it only if the API says so (reopen), after a decline. The lost
//     response of a request is never a reason.
//  4. It is dropped when the order is paid (finish).
//
// The states of a purchase:
//
//	basket ──submit──▶ paying ──201──▶ paid
//	   ▲                 │ └──never──▶ stopped, for the shop's staff
//	   └──new-key, corrected
//
// The browser gets neither the API key nor the idempotency key.
package shop
