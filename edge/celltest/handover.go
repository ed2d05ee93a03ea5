package celltest

import (
	"google.golang.org/protobuf/proto"

	"github.com/cellquota/cellquota/internal/ids"
	cq "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// CloseBucket closes the user's bucket, as the giver of a handover does: a request without an order is
// rejected as MOVED, and nobody of the bucket is sold to here any more.
func (c *Cell) CloseBucket(campaign, sku, user string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	bucket := ids.Bucket(ids.UserID(user))
	c.closed[bucket] = true
	owner := campaign + "/" + sku + "/" + user
	if v := c.requests[c.owners[owner]]; v != nil && v.GetOrderId() == "" {
		v.State, v.Reason = cq.RequestState_REQUEST_STATE_REJECTED, cq.Reason_REASON_MOVED
		c.stock[campaign+"/"+sku] += v.GetQuantity()
		delete(c.owners, owner)
	}
}

// CarryTo carries a user's place to the taker, as it is now: what becomes of the order only this cell
// knows.
func (c *Cell) CarryTo(taker *Cell, campaign, sku, user string) {
	owner := campaign + "/" + sku + "/" + user
	c.mu.Lock()
	held := c.owners[owner]
	v, _ := proto.Clone(c.requests[held]).(*cq.RequestView)
	c.mu.Unlock()
	if held == "" {
		return
	}
	v.State, v.Receipt, v.ExpiresAtMs = cq.RequestState_REQUEST_STATE_PENDING_PAYMENT, "", 0
	taker.mu.Lock()
	defer taker.mu.Unlock()
	taker.requests[held], taker.owners[owner], taker.carried[held] = v, held, true
}
