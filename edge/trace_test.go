package edge

import (
	"net/http"
	"strings"
	"testing"

	"github.com/cellquota/cellquota/edge/celltest"
)

// A caller's W3C trace goes on to the home cell, under a span of the edge's own.
func TestTraceparentGoesToTheCell(t *testing.T) {
	r := start(t)
	const trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	user := celltest.Homed("tracy", 1, 0, 2)[0]
	res, body := r.raw(http.MethodPost, askPath, ask("r1", 1, r.permit(user)), with(bearer(r.token(user)), "traceparent", "00-"+trace+"-"+parent+"-01"))
	if res.StatusCode != http.StatusAccepted {
		t.Fatalf("%d %s", res.StatusCode, body)
	}
	_, asked := r.cells[0].Asked()
	if got := asked.GetTraceparent(); !strings.HasPrefix(got, "00-"+trace+"-") || strings.Contains(got, parent) {
		t.Errorf("the cell was asked under %q", got)
	}
}
