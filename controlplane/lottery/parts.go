package lottery

import (
	"context"
	"fmt"

	"github.com/cellquota/cellquota/allocator/evidence"
	"github.com/cellquota/cellquota/controlplane/archive"
)

// parts writes a list into archive objects of at most evidence.PartBytes, and holds one of them.
type parts struct {
	ctx     context.Context //nolint:containedctx // of one call of keep
	archive archive.Archive
	prefix  string
	buffer  []byte
	kept    []evidence.Part
}

func (p *parts) add(line string) error {
	if len(p.buffer)+len(line) > evidence.PartBytes {
		if err := p.flush(); err != nil {
			return err
		}
	}
	p.buffer = append(p.buffer, line...)
	return nil
}

// flush writes what is held.
func (p *parts) flush() error {
	if len(p.buffer) == 0 {
		return nil
	}
	object, err := p.archive.Put(p.ctx, fmt.Sprintf("%s%06d", p.prefix, len(p.kept)+1), p.buffer)
	if err != nil {
		return err
	}
	p.kept = append(p.kept, evidence.Part{Object: object.Name, SHA256: object.SHA256, Size: object.Size})
	p.buffer = p.buffer[:0]
	return nil
}
