// Package faultproxy is a proxy between the API and the payment provider. It can drop
// the response to a confirm, add latency and report each call. A report contains no
// header and no body.
package faultproxy
