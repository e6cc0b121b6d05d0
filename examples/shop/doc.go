// Package shop is an example of a shop that uses the API: a storefront with a basket, a
// payment page with Stripe's Payment Element and 3-D Secure, and a page with the result.
// docs/checkout.md explains it.
//
// # The life of a key
//
//  1. The key is created with the basket (saveBasket), so all tabs of a basket have it.
//  2. When the customer pays, the whole request, including the card, is stored with the key
//     (submit), and committed before the first attempt. Each attempt sends these bytes with
//     this key, also after a reload, from a second tab, or after the customer has left, by an event of
//     the API (receiveEvent) or, if that is late, by Run.
//  3. A new key replaces the key only if the API allows it (reopen), for example after a
//     decline. A lost response is never a reason for a new key.
//  4. The key is dropped when the order is paid (finish).
//
// The states of a purchase:
//
//	basket ──submit──▶ paying ──201──▶ paid
//	   ▲                 │ └──never──▶ stopped, for the shop's staff
//	   └──new-key, corrected
//
// The browser gets neither the API key nor the idempotency key.
package shop
