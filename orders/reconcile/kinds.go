package reconcile

import (
	"net/http"

	"example.com/orders-api/orders"
	"example.com/orders-api/orders/provider"
	"example.com/orders-api/payments"
)

func comparePayments(r *run) *comparison[payments.Intent] {
	return &comparison[payments.Intent]{
		run:           r,
		object:        "intent",
		record:        "order",
		list:          r.Orders.Calls.Payments.List,
		get:           r.Orders.Calls.Payments.Get,
		state:         intentState,
		selectRecords: selectOrders,
		classify:      classifyPayment,
	}
}

// declined is the status of an intent whose card was declined. The holder of its client secret can
// still pay it with another card.
const declined = "declined"

func intentState(i payments.Intent) providerState {
	m := provider.ParseMetadata(i.Metadata)
	p := providerState{
		metadataIDs: idsOf(m, m.OrderID), id: i.ID, status: string(i.Status),
		money: Money{i.Amount, i.Currency}, created: i.Created,
	}
	switch {
	case i.Status == payments.StatusSucceeded:
		p.money.Amount = i.AmountReceived
	case i.Status == payments.StatusRequiresPaymentMethod && i.LastError != nil:
		p.status = declined
	}
	return p
}

func classifyPayment(l localState, p providerState) Kind {
	recorded := l.providerID == p.id
	awaited := l.unfinished && (recorded || l.providerID == "") // the key's next run uses this intent
	paid := orders.Status(l.status).Paid()
	failed := l.responseCode != 0 && l.responseCode != http.StatusCreated
	charged := p.status == string(payments.StatusSucceeded)
	switch {
	case paid && recorded && !charged:
		return MissingAtProvider
	case p.status == missing && !awaited && l.status != string(orders.StatusPaymentFailed):
		return OrphanedRecord
	case p.status == missing:
		return ""
	case (recorded || awaited) && p.money != l.money:
		return AmountMismatch
	case awaited, charged && recorded && paid && !failed:
		return ""
	case charged && paid && !recorded:
		return DuplicateCharge
	case charged:
		return UnrecordedCharge
	}
	switch p.status {
	case string(payments.StatusCanceled):
		return ""
	case string(payments.StatusRequiresConfirmation), string(payments.StatusRequiresPaymentMethod):
		return OrphanedIntent
	case declined: // if it is not recorded, the customer may have its client secret (R23, cancel first)
		if recorded {
			return ""
		}
		return OrphanedIntent
	case string(payments.StatusRequiresAction):
		if l.status == missing {
			return OrphanedIntent
		}
	}
	return OpenIntent
}

// compareRefunds needs the payments, because a refund that was made at the dashboard does not name
// the order.
func compareRefunds(r *run, payment *comparison[payments.Intent]) *comparison[payments.Refund] {
	return &comparison[payments.Refund]{
		run:           r,
		object:        "refund",
		record:        "our refund",
		list:          r.Orders.Calls.Payments.ListAllRefunds,
		get:           r.Orders.Calls.Payments.GetRefund,
		state:         refundState,
		payment:       payment.read,
		selectRecords: selectRefunds,
		classify:      classifyRefund,
	}
}

func refundState(r payments.Refund) providerState {
	m := provider.ParseMetadata(r.Metadata)
	return providerState{
		metadataIDs: idsOf(m, m.RefundID), id: r.ID, intentID: r.IntentID, status: string(r.Status),
		money: Money{r.Amount, r.Currency}, created: r.Created,
	}
}

func classifyRefund(l localState, p providerState) Kind {
	recorded := l.providerID == p.id
	awaited := l.unfinished && l.providerID == "" // the key's next run uses this refund
	switch {
	case p.status == missing && (awaited || payments.RefundStatus(l.status).Void()):
		return ""
	case p.status == missing && l.providerID == "":
		return OrphanedRecord
	case p.status == missing:
		return MissingAtProvider
	case (recorded || awaited) && p.money != l.money:
		return AmountMismatch
	case awaited, recorded && p.status == l.status:
		return ""
	case recorded:
		return RefundStatusChanged
	case payments.RefundStatus(p.status).Void():
		return ""
	default:
		return UnrecordedRefund
	}
}
