package shards

import _ "embed"

//go:embed sql/stocks.sql
var stocksSQL string

//go:embed sql/fence.sql
var fenceSQL string

//go:embed sql/orders.sql
var ordersSQL string

//go:embed sql/faults.sql
var faultsSQL string

//go:embed sql/quiet.sql
var quietSQL string

//go:embed sql/requests.sql
var requestsSQL string

//go:embed sql/trace.sql
var traceSQL string

//go:embed sql/entries.sql
var entriesSQL string

//go:embed sql/history.sql
var historySQL string

//go:embed sql/order.sql
var orderSQL string

//go:embed sql/payments.sql
var paymentsSQL string

//go:embed sql/refunds.sql
var refundsSQL string

//go:embed sql/has_refunds.sql
var hasRefundsSQL string

//go:embed sql/parked.sql
var parkedSQL string
