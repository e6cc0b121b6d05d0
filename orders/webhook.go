package orders

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/operations"
	"example.com/orders-api/payments"
)

// Errors of [Service.VerifyEvent].
var (
	ErrWebhooksOff  = payments.ErrWebhooksOff
	ErrEventRefused = payments.ErrSignature
	ErrInvalidEvent = payments.ErrInvalidEvent
	ErrThinEvent    = payments.ErrThinEvent
)

// Event is an event with a valid signature.
type Event struct {
	ID        string
	Type      string
	AccountID uuid.UUID // uuid.Nil if the event is not ours

	keyID            uuid.UUID
	refundID         uuid.UUID // uuid.Nil without a refund of ours
	providerRefundID string
}

// EventResult is what an event has caused.
type EventResult struct {
	KeyID    uuid.UUID // uuid.Nil if the key is unknown
	RefundID uuid.UUID // whose status was applied, or uuid.Nil

	RefundFailed bool               // after its response
	Run          idempotency.Result // empty if another run holds the key
}

// VerifyEvent verifies the signature of an unchanged body.
func (s *Service) VerifyEvent(payload []byte, signature string) (Event, error) {
	delivered, err := s.config.Payments.Event(payload, signature)
	if err != nil {
		return Event{}, err
	}
	event := Event{ID: delivered.ID, Type: delivered.Type}
	accountID, noAccount := uuid.Parse(delivered.Metadata["account_id"])
	keyID, noKey := uuid.Parse(delivered.Metadata["idempotency_key_id"])
	if noAccount != nil || noKey != nil || delivered.IntentID == "" {
		return event, nil // of another program
	}
	event.AccountID, event.keyID = accountID, keyID
	if refundID, err := uuid.Parse(delivered.Metadata["refund_id"]); err == nil {
		event.refundID, event.providerRefundID = refundID, delivered.RefundID
	}
	return event, nil
}

// HandleEvent resumes the key of an event. The run reads the outcome from the provider, so an
// old, repeated or wrong event changes nothing. If the key is finished, HandleEvent applies the
// refund's status. After an error, the provider should repeat the event.
func (s *Service) HandleEvent(ctx context.Context, event Event) (result EventResult, err error) {
	if event.AccountID == uuid.Nil {
		return result, nil
	}
	run, err := s.config.Operations.Resume(ctx, event.AccountID, event.keyID)
	known := !errors.Is(err, idempotency.ErrNotFound) // of another database, or reaped
	if known {
		result.KeyID = event.keyID
	}
	busy := errors.Is(err, idempotency.ErrInProgress)
	if event.providerRefundID != "" && (!known || busy || run.Replayed) {
		// A run in progress may have read the refund before.
		result.RefundFailed, err = s.SyncRefund(ctx, event.AccountID, event.refundID, event.providerRefundID)
		if errors.Is(err, operations.ErrNotFound) {
			return result, nil
		}
		result.RefundID = event.refundID
		return result, err
	}
	if !known {
		return result, nil
	}
	result.Run = run
	if busy || errors.Is(err, idempotency.ErrActionRequired) || event.Type == "payment_intent.processing" && stillProcessing(err) {
		return result, nil // another event follows when the payment is decided
	}
	return result, err
}

func stillProcessing(err error) bool {
	failed, ok := errors.AsType[*payments.Error](err)
	return ok && failed.Code == string(payments.StatusProcessing)
}

// SyncRefund reads a refund from the provider and applies its status, which may change for
// days. The stored response does not change, so failed reports that the customer's money came back.
func (s *Service) SyncRefund(ctx context.Context, accountID, id uuid.UUID, providerID string) (failed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.StepTimeout)
	defer cancel()
	r, err := findRefund(ctx, s.config.Pool, accountID, id)
	if err != nil {
		return false, err
	}
	made, err := s.config.Payments.GetRefund(ctx, providerID)
	about := []any{"order_id", r.OrderID, "refund_id", r.ID}
	if failed := asPaymentError(err); failed != nil {
		return false, s.retryLater(operations.ErrProviderUnavailable, failed, about...)
	}
	if !r.matches(made) {
		return false, s.retryLater(operations.ErrOutcomeUnknown, &payments.Error{NeedsOperator: true, Code: "not_our_refund"}, about...)
	}
	if r.ProviderRefundID == nil && r.Status == payments.RefundFailed && !made.Status.Void() {
		s.config.Logger.ErrorContext(ctx, "the provider made a refund whose stored response is a failure", about...)
	}
	batch := &pgx.Batch{}
	applyRefundStatusTx(ctx, batch, accountID, r, made)
	// READ COMMITTED: each statement must see what the lock's previous holder committed.
	err = pgx.BeginTxFunc(ctx, s.config.Pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		return tx.SendBatch(ctx, batch).Close()
	})
	if err != nil {
		return false, fmt.Errorf("apply refund status: %w", postgres.Translate(err))
	}
	if failed = made.Status.Void() && !r.Status.Void(); failed {
		s.config.Logger.WarnContext(ctx, "a refund failed after its response", append(about, "reason", made.FailureReason)...)
	}
	return failed, nil
}
