package api

import (
	_ "embed"
	"net/http"
)

// OpenAPI is the description of this face, OpenAPI 3.1, as it is served at /openapi.yaml.
//
//go:embed openapi.yaml
var OpenAPI []byte

func (s *Server) openAPI(*call) reply {
	return reply{layer: atHTTP, code: "OK", status: http.StatusOK, body: OpenAPI, media: "application/yaml", cache: "public, max-age=300"}
}
