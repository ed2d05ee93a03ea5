package ids

// The ids that people and programs outside choose. Each is its own type so that
// a SKU cannot be passed where a campaign is meant, and a function that takes
// one need not validate it again.

// CampaignID names a campaign: [a-z0-9-]{1,63}, unique on the platform for ever
// (a deleted campaign's id is not given out again).
type CampaignID string

// CellID names a cell: [a-z0-9-]{1,63}. It has no dot, which is why the part of
// a reservation id before its dot is always exactly the cell.
type CellID string

// SKUID names a SKU inside the platform: [A-Za-z0-9._-]{1,64}, but neither "."
// nor "..", which no URL path can address and no directory can hold.
type SKUID string

// RequestID is the client's own name for one attempt, unique per user, campaign
// and SKU: [A-Za-z0-9_-]{1,64}. A repeat under the same id is a replay.
type RequestID string

// PaymentID is the caller's name for one payment attempt of an order, unique
// within that order: [A-Za-z0-9._:-]{1,128}. Refund ids follow it too.
type PaymentID string

// ParseCampaignID accepts [a-z0-9-]{1,63}; anything else is an *Error on
// campaign_id.
func ParseCampaignID(s string) (CampaignID, error) {
	return parse[CampaignID](&campaignGrammar, s)
}

// ParseCellID accepts [a-z0-9-]{1,63}; anything else is an *Error on cell_id.
func ParseCellID(s string) (CellID, error) {
	return parse[CellID](&cellGrammar, s)
}

// ParseSKUID accepts [A-Za-z0-9._-]{1,64} without "." and ".."; anything else is
// an *Error on sku_id.
func ParseSKUID(s string) (SKUID, error) {
	if s == "." || s == ".." {
		return "", &Error{Field: skuGrammar.field, Rule: "must not be . or .."}
	}
	return parse[SKUID](&skuGrammar, s)
}

// ParseRequestID accepts [A-Za-z0-9_-]{1,64}; anything else is an *Error on
// request_id.
func ParseRequestID(s string) (RequestID, error) {
	return parse[RequestID](&requestGrammar, s)
}

// ParsePaymentID accepts [A-Za-z0-9._:-]{1,128}; anything else is an *Error on
// payment_id.
func ParsePaymentID(s string) (PaymentID, error) {
	return parse[PaymentID](&paymentGrammar, s)
}
