// Command orders is the API and everything around it: run `orders help`.
package main
