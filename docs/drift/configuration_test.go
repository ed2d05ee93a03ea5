package drift

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cellquota/cellquota/cell"
	"github.com/cellquota/cellquota/controlplane"
	"github.com/cellquota/cellquota/edge"
	"github.com/cellquota/cellquota/internal/config"
)

const configurationPage = "docs/reference/configuration.md"

// TestConfiguration compares the page with the Config type of every server.
func TestConfiguration(t *testing.T) {
	t.Parallel()
	r := house(t)
	common := map[string]bool{}
	for _, k := range config.Describe[config.Common]() {
		common[k.Name] = true
	}
	r.generated(t, configurationPage, "common", describe(config.Describe[config.Common](), nil))
	r.generated(t, configurationPage, "controlplane", describe(config.Describe[controlplane.Config](), common))
	r.generated(t, configurationPage, "cell", describe(config.Describe[cell.Config](), common))
	r.generated(t, configurationPage, "edge", describe(config.Describe[edge.Config](), common))
}

// describe is the table of keys that are not in without.
func describe(keys []config.Key, without map[string]bool) string {
	var table strings.Builder
	table.WriteString("| key | kind | default | meaning |\n|---|---|---|---|\n")
	for _, k := range keys {
		if without[k.Name] {
			continue
		}
		meaning := k.Doc
		if k.Rule != "" {
			meaning += " (" + k.Rule + ")"
		}
		fallback := ""
		if k.Default != "" {
			fallback = "`" + k.Default + "`"
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s |\n", k.Name, k.Type, fallback, inTable(meaning))
	}
	return table.String()
}
