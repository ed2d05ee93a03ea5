// Package target finds the platform that a command is for, and opens connections to it.
//
// Job: --endpoints-file, --context, CELLQUOTA_ENDPOINTS or the current context of
// ~/.config/cellquota/config.yaml, in this order, become one Target: replicas of the control plane,
// edges, a token per role, and for a local platform its data directory. Dial then speaks as the role
// that a command needs.
//
// Promise: nothing is guessed. A context that is not there, a key that is not known, a file that
// cannot be read name themselves. Tokens and secrets are read when they are used and are part of no
// error. Plain text is spoken to this machine only, and a token is
// shown to a server whose certificate says spiffe://DOMAIN/controlplane/NAME: a cell or an edge of the
// same authorities gets none.
//
// The configuration file:
//
//	current: local
//	contexts:
//	  local: {endpoints_file: /path/endpoints.json}
//	  shop:
//	    control_planes: [cp-1.example:7443, cp-2.example:7443]
//	    edges: [https://buy.example]
//	    token_file: /path/token            # for every role, or
//	    token_files: {sre: /path/sre}      # one per role
//	    tls: {cert_file: …, key_file: …, ca_file: …}   # ca_file alone where a token says who calls
//	    trust_domain: cellquota            # of the control plane's certificate; this is the default
//
// Neighbours: deploy/local/platform knows endpoints.json, internal/transport dials.
package target
