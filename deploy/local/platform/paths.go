package platform

import "path/filepath"

// Names of files under a platform's data directory.
const (
	endpointsName = "endpoints.json"
	socketName    = "control.sock"
)

// What a development identity token must say, and what signs it. A dev edge is
// configured with the same three.
const (
	// TokenIssuer is the iss claim.
	TokenIssuer = "cellquota-dev"
	// TokenAudience is the aud claim.
	TokenAudience = "cellquota"
)

// EndpointsFile is where the platform of dataDir says how it is reached.
func EndpointsFile(dataDir string) string { return filepath.Join(dataDir, endpointsName) }

// IdentitySecretFile is the HS256 secret of the platform's identity tokens,
// hexadecimal text whose bytes, less the trailing newline, are the key.
func IdentitySecretFile(dataDir string) string {
	return filepath.Join(dataDir, "secrets", "identity")
}

// DataDir is the data directory that an endpoints file belongs to.
func DataDir(endpointsFile string) string { return filepath.Dir(endpointsFile) }
