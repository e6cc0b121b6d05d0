// Package faultproxy is a proxy between the API and the payment provider, which can drop the
// response to a confirm, add latency and report each call.
package faultproxy
