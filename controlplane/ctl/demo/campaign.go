package demo

import (
	"fmt"
	"strings"
	"time"
)

// What is sold. The reservation's life is long enough to sit out the dead cell, and short enough that
// those who walk away give their unit back while others still come.
const (
	campaignName   = "demo"
	skuName        = "phone-x"
	reservationTTL = 30 * time.Second
	saleWindow     = time.Hour // closed by hand long before
)

// campaignYAML is the file that the demo publishes.
func campaignYAML(campaign, sku string, s Settings, cells []string, now time.Time) string {
	return fmt.Sprintf(`apiVersion: cellquota/v1
kind: Campaign
campaign_id: %s
display: {title: "The demo"}
open_at: %s
close_at: %s
reservation_ttl: %s
refund_rule: NO_RESTOCK
on_lease_loss: CONTINUE
reclaim: MANUAL
skus:
  - sku_id: %s
    physical_stock: %d
    sale_limit: %d
    price: {amount: "4999.00", currency: CNY}
    reserve: "4%%"
    split: {policy: EQUAL}
    top_up: {policy: MANUAL}
cells: [%s]
`, campaign, now.Add(-time.Minute).UTC().Format(time.RFC3339), now.Add(saleWindow).UTC().Format(time.RFC3339), reservationTTL,
		sku, s.Stock, s.Stock, strings.Join(cells, ", "))
}
