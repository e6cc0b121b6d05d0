// A Restate server from npm, for the peer beside it.
module example.com/orders-api/lab/peers/restate/server

go 1.26.0
