package migrate

import _ "embed"

var (
	//go:embed exists.sql
	existsSQL string
	//go:embed step.sql
	stepSQL string
)
