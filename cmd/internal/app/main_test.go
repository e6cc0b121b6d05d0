package app_test

import (
	"os"
	"testing"

	"example.com/orders-api/migrations/dbtest"
)

func TestMain(m *testing.M) { os.Exit(dbtest.Main{M: m}.Run()) }
