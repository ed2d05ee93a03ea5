package quota

import (
	"log/slog"

	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/clock"
)

// Deps are what every driver of this room is given; all are required.
type Deps struct {
	Store *store.Store
	View  *view.View
	Clock clock.Clock
	Log   *slog.Logger
}
