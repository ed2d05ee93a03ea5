package store

import (
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/cellquota/cellquota/controlplane/convert"
	"github.com/cellquota/cellquota/controlplane/core"
	storev1 "github.com/cellquota/cellquota/proto/cellquota/store/v1"
)

// cluster is the record of the etcd that the records were made in, and of the last
// recovery. It is kept beside the view, for this package alone.
type cluster struct {
	id        uint64
	recovered core.Term // the term of the last recovery; Count 0: never
}

// Check implements what fetch asks of a record.
func (cluster) Check() error { return nil }

// otherThan says in words that another cluster answers than the one that the
// records were made in; "": it is the same.
func (c cluster) otherThan(answers uint64) string {
	if c.id == 0 || answers == 0 || c.id == answers {
		return ""
	}
	return fmt.Sprintf("the records were made in etcd cluster %x, cluster %x holds them now", c.id, answers)
}

func (c cluster) encode() proto.Message {
	m := &storev1.Cluster{ClusterId: c.id}
	if c.recovered.Count > 0 {
		m.Recovered = convert.Term(c.recovered)
	}
	return m
}

func decodeCluster(kv *mvccpb.KeyValue) (cluster, error) {
	var m storev1.Cluster
	err := decode(kv.Value, &m)
	return cluster{id: m.GetClusterId(), recovered: convert.FromTerm(m.GetRecovered())}, err
}

// givenUp tells whether etcd was recovered since this process last heard of it:
// what the process remembers is of a past that was given up.
func (p *past) givenUp(present cluster) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.recoveryKnown && present.recovered.Count > p.recovery
}

// recovered takes the record of the cluster over. A recovery that this process was
// away for ends what it remembers, and a loss that it latched; a record from before
// a recovery that it knows of is a loss itself, and so is one of another cluster
// than the one that answers.
func (p *past) recovered(present cluster) error {
	count := present.recovered.Count
	if p.givenUp(present) {
		p.begin(true)
	}
	p.mu.Lock()
	known, last, answers := p.recoveryKnown, p.recovery, p.cluster
	p.recovery, p.recoveryKnown = max(p.recovery, count), true
	p.mu.Unlock()
	if known && count < last {
		return p.lose("etcd was recovered under term %d, and knows of a recovery under term %d only", last, count)
	}
	if why := present.otherThan(answers); why != "" {
		return p.lose("%s", why)
	}
	return nil
}
