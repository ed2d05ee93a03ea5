package api

import (
	"context"
	"errors"
	"fmt"

	"github.com/cellquota/cellquota/cell/status"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// maxPage and defaultPage bound lists of one user.
const (
	maxPage     = 200
	defaultPage = 50
)

// GetRequest implements AdmissionService.
func (s *Server) GetRequest(ctx context.Context, in *pb.GetRequestRequest) (*pb.GetRequestResponse, error) {
	q, err := s.readQuery(in)
	if err != nil {
		return nil, err
	}
	view, err := s.Statuses.Get(ctx, q)
	if err != nil {
		return nil, err
	}
	return &pb.GetRequestResponse{Request: view}, nil
}

// readQuery reads the key of a request. Which mirror has it is in the campaign's rules: while they are
// not known here, nobody can say that there is no such request.
func (s *Server) readQuery(in *pb.GetRequestRequest) (status.Query, error) {
	var bad violations
	campaign := parse(&bad, ids.ParseCampaignID, in.GetCampaignId())
	q := status.Query{
		SKU: parse(&bad, ids.ParseSKUID, in.GetSkuId()), User: parse(&bad, ids.ParseUserID, in.GetUserId()),
		Request: parse(&bad, ids.ParseRequestID, in.GetRequestId()), Receipt: in.GetReceipt(),
	}
	if err := bad.err(); err != nil {
		return q, err
	}
	c, ok := s.Rules.Current().Campaign(campaign)
	if !ok {
		if _, read := s.Rules.Ready(); read && q.Receipt == "" {
			return q, status.ErrNotFound
		}
		return q, fmt.Errorf("%w: the rules of campaign %s are not known here", status.ErrUnavailable, campaign)
	}
	q.Scope, q.Direct = scope(c, q.SKU), c.Direct
	return q, nil
}

// ListRequests implements AdmissionService.
func (s *Server) ListRequests(ctx context.Context, in *pb.ListRequestsRequest) (*pb.ListRequestsResponse, error) {
	var bad violations
	campaign, user := parse(&bad, ids.ParseCampaignID, in.GetCampaignId()), parse(&bad, ids.ParseUserID, in.GetUserId())
	limit := page(&bad, in.GetPageSize())
	if err := bad.err(); err != nil {
		return nil, err
	}
	views, err := s.Statuses.List(ctx, campaign, user, limit)
	if err != nil {
		return nil, err
	}
	return &pb.ListRequestsResponse{Requests: views}, nil
}

// violations gathers every broken field of a request.
type violations []rpcstatus.Violation

func (v *violations) add(field, rule string) {
	*v = append(*v, rpcstatus.Violation{Field: field, Rule: rule})
}

func (v violations) err() error { return rpcstatus.Invalid(v...) }

// parse reads an id by its grammar, or names its field.
func parse[T any](v *violations, read func(string) (T, error), text string) T {
	out, err := read(text)
	var bad *ids.Error
	switch {
	case errors.As(err, &bad):
		v.add(bad.Field, bad.Rule)
	case err != nil:
		v.add("", err.Error())
	}
	return out
}

func page(v *violations, size int32) int {
	if size < 0 || size > maxPage {
		v.add("page_size", fmt.Sprintf("must be 0 to %d", maxPage))
	}
	if size == 0 {
		return defaultPage
	}
	return int(size)
}
