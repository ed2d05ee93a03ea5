package store

import (
	"context"
	"slices"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Space gives the size of the largest member's database in bytes, and whether any
// member has raised NOSPACE: then etcd refuses every write until there is room and
// somebody has disarmed the alarm. Members that do not answer are left out.
func (s *Store) Space(ctx context.Context) (bytes int64, full bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	alarms, err := s.client.AlarmList(ctx)
	if err != nil {
		return 0, false, readError("list alarms", err)
	}
	for _, a := range alarms.Alarms {
		full = full || a.Alarm == pb.AlarmType_NOSPACE
	}
	endpoints := s.client.Endpoints()
	sizes := make([]int64, len(endpoints))
	var all sync.WaitGroup
	for i, endpoint := range endpoints { // at once: one may be frozen
		all.Go(func() {
			if st, err := s.client.Status(ctx, endpoint); err == nil {
				sizes[i] = st.DbSize
			}
		})
	}
	all.Wait()
	return slices.Max(sizes), full, nil
}
