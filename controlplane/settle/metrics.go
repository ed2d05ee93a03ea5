package settle

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellquota/cellquota/controlplane/report/undersell"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/telemetry"
)

// Metrics are the figures of this room: the unsold units of the campaigns whose
// account was taken, by cause. A nil *Metrics keeps none.
type Metrics struct {
	undersell *prometheus.GaugeVec
	mu        sync.Mutex
	accounts  map[ids.CampaignID][]undersell.Account
}

// NewMetrics registers them; registry nil: none.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{accounts: map[ids.CampaignID][]undersell.Account{}}
	m.undersell = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: telemetry.Namespace, Name: "undersell_units",
		Help: "Units that were not sold, by cause, over the campaigns whose account this replica took last: when it settled them, or when it was asked for it.",
	}, []string{"cause"})
	for _, cause := range undersell.Causes() {
		m.undersell.WithLabelValues(string(cause))
	}
	if registry == nil {
		return m, nil
	}
	return m, registry.Register(m.undersell)
}

// Account notes the newest account of a campaign that is over.
func (m *Metrics) Account(campaign ids.CampaignID, accounts []undersell.Account) {
	m.account(campaign, accounts)
}

func (m *Metrics) account(campaign ids.CampaignID, accounts []undersell.Account) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.accounts[campaign] = accounts
	m.show()
}

// keep forgets campaigns that are no more.
func (m *Metrics) keep(s view.Snapshot) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for id := range m.accounts {
		if _, known := s.Campaign(id); !known {
			delete(m.accounts, id)
		}
	}
	m.show()
}

func (m *Metrics) show() {
	for _, cause := range undersell.Causes() {
		var units int64
		for _, accounts := range m.accounts {
			for _, a := range accounts {
				units += a.Of(cause)
			}
		}
		m.undersell.WithLabelValues(string(cause)).Set(float64(units))
	}
}
