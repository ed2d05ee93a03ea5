package celltest

import (
	"context"
	"errors"
	"io"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/signed"
	cq "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Exchange implements the service: one answer per ask, the last ask of a batch first.
func (c *Cell) Exchange(stream cq.AdmissionService_ExchangeServer) error {
	c.mu.Lock()
	broken := c.breaks
	c.mu.Unlock()
	received := make(chan error, 1)
	go func() { received <- c.serve(stream) }()
	select {
	case err := <-received:
		return err
	case <-broken:
		return errors.New("broken by the test") // the receiver ends with the stream
	}
}

func (c *Cell) serve(stream cq.AdmissionService_ExchangeServer) error {
	for {
		in, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var out cq.ExchangeResponse
		for _, ask := range slices.Backward(in.GetAsks()) {
			if a := c.answer(ask); a != nil {
				a.CorrelationId = ask.GetCorrelationId()
				out.Answers = append(out.Answers, a)
			}
		}
		if len(out.GetAnswers()) == 0 {
			continue
		}
		if err := stream.Send(&out); err != nil {
			return err
		}
	}
}

func (c *Cell) answer(ask *cq.Ask) *cq.Answer {
	c.mu.Lock()
	c.asked++
	c.last = ask
	script, silent := c.script, c.silent
	c.mu.Unlock()
	if script != nil {
		return script(ask)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.decide(ask)
	if silent {
		return nil
	}
	return a
}

// decide follows the order of the real script as far as an edge can tell: replay, buyer, stock.
func (c *Cell) decide(ask *cq.Ask) *cq.Answer {
	owner := ask.GetCampaignId() + "/" + ask.GetSkuId() + "/" + ask.GetUserId()
	in, closed := ask.GetAdmit(), c.closed[ids.Bucket(ids.UserID(ask.GetUserId()))]
	if in == nil {
		if closed {
			return &cq.Answer{Outcome: cq.AdmitOutcome_ADMIT_OUTCOME_MOVED}
		}
		if held, ok := c.owners[owner]; ok {
			return c.already(c.requests[held])
		}
		return &cq.Answer{Outcome: cq.AdmitOutcome_ADMIT_OUTCOME_CLEAR}
	}
	k := key(ask.GetCampaignId(), ask.GetSkuId(), ask.GetUserId(), in.GetRequestId())
	if v, ok := c.requests[k]; ok && v.GetReason() != cq.Reason_REASON_MOVED {
		if v.GetQuantity() != in.GetQuantity() {
			return &cq.Answer{Outcome: cq.AdmitOutcome_ADMIT_OUTCOME_IDEMPOTENCY_CONFLICT}
		}
		return &cq.Answer{Outcome: cq.AdmitOutcome_ADMIT_OUTCOME_REPLAYED, Request: c.clone(v)}
	}
	if closed {
		return &cq.Answer{Outcome: cq.AdmitOutcome_ADMIT_OUTCOME_MOVED}
	}
	if held, ok := c.owners[owner]; ok {
		return c.already(c.requests[held])
	}
	stock := ask.GetCampaignId() + "/" + ask.GetSkuId()
	if c.stock[stock] < in.GetQuantity() {
		return &cq.Answer{Outcome: cq.AdmitOutcome_ADMIT_OUTCOME_TEMP_SOLD_OUT, StockLeft: c.stock[stock]}
	}
	c.stock[stock] -= in.GetQuantity()
	v := c.admit(ask, in)
	c.requests[k], c.owners[owner] = v, k
	return &cq.Answer{Outcome: cq.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED, Request: c.clone(v)}
}

func (c *Cell) admit(ask *cq.Ask, in *cq.AdmitAsk) *cq.RequestView {
	build, now := ids.Build{Fence: 1, Count: 1}, clock.System().Now()
	user, request := ids.UserID(ask.GetUserId()), ids.RequestID(in.GetRequestId())
	campaign, sku := ids.CampaignID(ask.GetCampaignId()), ids.SKUID(ask.GetSkuId())
	receipt, err := signed.Receipt{
		User: user, Request: request, Campaign: campaign, SKU: sku, Cell: c.ID, Build: build, At: now,
	}.Sign(c.receipts, c.receipts.Kids()[0])
	if err != nil {
		panic(err) // the test's own keys
	}
	return &cq.RequestView{
		RequestId: in.GetRequestId(), CampaignId: ask.GetCampaignId(), SkuId: ask.GetSkuId(),
		State: cq.RequestState_REQUEST_STATE_QUEUED, Quantity: in.GetQuantity(), Ack: cq.Ack_ACK_KAFKA,
		ReservationId: string(ids.DeriveReservation(campaign, sku, user, request, c.ID, build)),
		Receipt:       receipt, AdmittedAtMs: now.UnixMilli(),
	}
}

func (c *Cell) already(v *cq.RequestView) *cq.Answer {
	outcome := cq.AdmitOutcome_ADMIT_OUTCOME_ALREADY_RESERVED
	switch v.GetState() {
	case cq.RequestState_REQUEST_STATE_PAID:
		outcome = cq.AdmitOutcome_ADMIT_OUTCOME_ALREADY_PURCHASED
	case cq.RequestState_REQUEST_STATE_CLOSED:
		outcome = cq.AdmitOutcome_ADMIT_OUTCOME_ORDER_CLOSED
	default: // the others have no case of their own: what follows the switch holds
	}
	return &cq.Answer{Outcome: outcome, Request: c.clone(v)}
}

func (c *Cell) clone(v *cq.RequestView) *cq.RequestView {
	return proto.Clone(v).(*cq.RequestView) //nolint:forcetypeassert // a clone has its type
}

// GetRequest implements the service.
func (c *Cell) GetRequest(_ context.Context, in *cq.GetRequestRequest) (*cq.GetRequestResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastCall = in
	if c.callErr != nil {
		return nil, c.callErr
	}
	v, ok := c.requests[key(in.GetCampaignId(), in.GetSkuId(), in.GetUserId(), in.GetRequestId())]
	if !ok {
		return nil, rpcstatus.ErrNotFound
	}
	return &cq.GetRequestResponse{Request: c.clone(v)}, nil
}

// LastStatusCall is the last GetRequest that came.
func (c *Cell) LastStatusCall() *cq.GetRequestRequest {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lastCall
}

// ListRequests implements the service.
func (c *Cell) ListRequests(_ context.Context, in *cq.ListRequestsRequest) (*cq.ListRequestsResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.callErr != nil {
		return nil, c.callErr
	}
	var out cq.ListRequestsResponse
	for k, v := range c.requests {
		if k == key(in.GetCampaignId(), v.GetSkuId(), in.GetUserId(), v.GetRequestId()) && !c.carried[k] {
			out.Requests = append(out.Requests, c.clone(v))
		}
	}
	return &out, nil
}
