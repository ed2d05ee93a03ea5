package api

import (
	"context"
	"errors"
	"strconv"
	"sync"

	"google.golang.org/grpc"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/report/shards"
	"github.com/cellquota/cellquota/controlplane/report/verify"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/ids"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// answer is one shard's.
type answer[T any] struct {
	cell  core.Cell
	value T
	err   error
}

// atOnce bounds the shards that one call reads at the same time.
const atOnce = 64

// each asks every cell's shard at the same time, in one snapshot each, and gives
// the answers in the order of the cells. A shard that does not answer costs its
// own answer only.
func each[T any](ctx context.Context, reader *shards.Reader, cells []core.Cell, ask func(context.Context, *shards.Snapshot) (T, error)) []answer[T] {
	out := make([]answer[T], len(cells))
	room := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	for i, cell := range cells {
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			out[i].cell = cell
			shard, err := reader.Snapshot(ctx, cell.Spec.Shard.ReaderDSNFile)
			if err != nil {
				out[i].err = err
				return
			}
			defer shard.Close(ctx)
			out[i].value, out[i].err = ask(ctx, shard)
		})
	}
	wg.Wait()
	return out
}

// Mirrors asks live processes of cells about their mirrors. It implements
// verify.Mirrors.
type Mirrors struct {
	View *view.View
	Dial func(addr string) (*grpc.ClientConn, error)
}

// errNoProcess: no process of the cell answers, so nobody can be asked.
var errNoProcess = errors.New("no live process of the cell answers")

// ask calls a process of the cell, and another one where it does not answer.
func (m Mirrors) ask(ctx context.Context, cell ids.CellID, call func(context.Context, pb.CellFactsServiceClient) error) error {
	err := errNoProcess
	for _, in := range m.View.Snapshot().Instances(cell) {
		if err = m.askOne(ctx, in.Address, call); err == nil {
			return nil
		}
	}
	return err
}

func (m Mirrors) askOne(ctx context.Context, addr string, call func(context.Context, pb.CellFactsServiceClient) error) error {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	conn, err := m.Dial(addr)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // nothing is under way any more
	return call(ctx, pb.NewCellFactsServiceClient(conn))
}

// Mirror implements verify.Mirrors.
func (m Mirrors) Mirror(ctx context.Context, cell ids.CellID, key core.BookKey) (facts verify.MirrorFacts, err error) {
	err = m.ask(ctx, cell, func(ctx context.Context, c pb.CellFactsServiceClient) error {
		got, err := c.GetMirror(ctx, &pb.GetMirrorRequest{CampaignId: string(key.Campaign), SkuId: string(key.SKU)})
		facts = verify.MirrorFacts{Present: got.GetPresent(), FenceVersion: got.GetFenceVersion(), Build: build(got.GetBuild()), Stock: got.GetStock(), Outstanding: got.GetOutstanding(), Stream: got.GetStreamLength()}
		return err
	})
	return facts, err
}

// build is a mirror's build as inboxes name it; empty: of none.
func build(b *pb.Build) string {
	if b == nil {
		return ""
	}
	return strconv.FormatInt(b.GetFenceVersion(), 10) + "." + strconv.FormatInt(b.GetCount(), 10)
}
