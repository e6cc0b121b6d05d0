package payments

import (
	"fmt"
	"strings"
)

// MaxAmount is the largest amount of any currency.
const MaxAmount = 999_999_999_999

// Currency is what Stripe states about a currency, and the limits of one charge. Amounts are in its smallest unit.
type Currency struct {
	Decimals         int // of a printed amount
	Minimum, Maximum int64
	Step             int64 // Stripe rejects an amount that is not a multiple of it
}

// The codes, minimums and maximums below are those of https://docs.stripe.com/currencies of July 2026. An older copy
// of this page has the currencies with three decimals, and the reference of PaymentIntent.amount the limit of eight
// digits. The page also permits twelve digits for most cards without naming them, so a shop that needs these edits maximums.
const supported = " aed afn all amd ang aoa ars aud awg azn bam bbd bdt bhd bif bmd bnd bob brl bsd bwp byn bzd cad cdf chf clp cny cop" +
	" crc cve czk djf dkk dop dzd egp etb eur fjd fkp gbp gel gip gmd gnf gtq gyd hkd hnl htg huf idr ils inr isk jmd jod jpy kes kgs" +
	" khr kmf krw kwd kyd kzt lak lbp lkr lrd lsl mad mdl mga mkd mmk mnt mop mur mvr mwk mxn myr mzn nad ngn nio nok npr nzd omr pab" +
	" pen pgk php pkr pln pyg qar ron rsd rub rwf sar sbd scr sek sgd shp sle sos srd std szl thb tjs tnd top try ttd twd tzs uah ugx" +
	" usd uyu uzs vnd vuv wst xaf xcd xcg xof xpf yer zar zmw "

// minimums apply to a charge that settles in its own currency. Stripe converts any other charge to
// the account's currency first, which this program does not know, and may still refuse the result.
// A currency without a minimum has 1.
var minimums = map[string]int64{
	"aed": 2_00, "ars": 50, "aud": 50, "brl": 50, "cad": 50, "chf": 50, "cop": 50, "czk": 15_00, "dkk": 2_50, "eur": 50, "gbp": 30,
	"hkd": 4_00, "huf": 175_00, "idr": 50, "ils": 50, "inr": 50, "jpy": 50, "krw": 50, "mxn": 10_00, "myr": 2_00, "nok": 3_00,
	"nzd": 50, "php": 50, "pln": 2_00, "ron": 2_00, "rub": 50, "sek": 3_00, "sgd": 50, "thb": 10_00, "usd": 50, "zar": 50,
}

var maximums = map[string]int64{
	"cop": 9_999_999_999, "huf": 9_999_999_999, "idr": MaxAmount, "inr": 999_999_999, "jpy": 9_999_999_999, "lbp": 99_999_999_999,
}

// FindCurrency returns a currency by its code in lower case. An unknown currency has the limits that most have.
func FindCurrency(code string) (c Currency, known bool) {
	c = Currency{Decimals: 2, Minimum: max(1, minimums[code]), Maximum: max(99_999_999, maximums[code]), Step: 1}
	switch code {
	case "bif", "clp", "djf", "gnf", "jpy", "kmf", "krw", "mga", "pyg", "rwf", "vnd", "vuv", "xaf", "xof", "xpf":
		c.Decimals = 0
	case "bhd", "jod", "kwd", "omr", "tnd":
		c.Decimals, c.Step = 3, 10
	case "isk", "ugx": // without a fraction, but counted in hundredths
		c.Step = 100
	}
	return c, len(code) == 3 && strings.Contains(supported, " "+code+" ")
}

// FormatAmount formats ("eur", -1999) as "-19.99 EUR", without a float.
func FormatAmount(code string, amount int64) string {
	c, _ := FindCurrency(code)
	width := c.Decimals + 1
	if amount < 0 {
		width++
	}
	digits := fmt.Sprintf("%0*d", width, amount)
	if point := len(digits) - c.Decimals; c.Decimals > 0 {
		digits = digits[:point] + "." + digits[point:]
	}
	return digits + " " + strings.ToUpper(code)
}
