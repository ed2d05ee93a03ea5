package link

import (
	"github.com/cellquota/cellquota/cell/admission"
	"github.com/cellquota/cellquota/internal/ids"
)

// scopeOf is the mirror of a SKU by its campaign's purchase scope.
func scopeOf(campaign ids.CampaignID, sku ids.SKUID, perSKU bool) admission.Scope {
	if perSKU {
		return admission.Scope{Campaign: campaign, SKU: sku}
	}
	return admission.Scope{Campaign: campaign}
}
