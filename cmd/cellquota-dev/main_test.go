package main

import (
	"os"
	"path/filepath"
	"testing"
)

// The test binary plays every program that a platform runs, told apart by the
// name it is started under: cellquota-dev is the real one, cellquotad and
// cellctl are the neighbours, as thin as the supervisor can see them.
func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case "cellquota-dev":
		main()
	case "cellquotad":
		os.Exit(neighbour(fakeCellquotad, os.Args[1:]))
	case "cellctl":
		os.Exit(neighbour(fakeCellctl, os.Args[1:]))
	default:
		os.Exit(m.Run())
	}
}
