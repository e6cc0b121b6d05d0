package receipts_test

import (
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/orders-api/receipts"
)

func ExampleStageTx() {
	account, order := uuid.New(), uuid.New()
	batch := &pgx.Batch{}
	batch.Queue(`UPDATE orders SET status = 'paid', paid_at = now() WHERE account_id = $1 AND id = $2`, account, order)
	receipts.StageTx(batch, account, order)
	fmt.Println(batch.Len(), "statements, one round trip: tx.SendBatch(ctx, batch)")
	// Output: 2 statements, one round trip: tx.SendBatch(ctx, batch)
}

func ExampleNewSMTP() {
	mailer, err := receipts.NewSMTP("smtp://shop:correct%20horse@mail.example.com:587")
	if err != nil {
		panic(err)
	}
	fmt.Println("receipts go through", mailer)
	// Output: receipts go through smtp://mail.example.com:587
}
