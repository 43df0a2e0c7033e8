package s3

import (
	"net/http"
	"os"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"
)

// credentialChain returns credentials from the sources that AWS tools use, and the client that
// requests them. hasService reports whether the environment names a service that provides
// credentials. aws states that the server is AWS: only AWS has roles of machines.
func credentialChain(
	profile string,
	aws bool,
) (_ *credentials.Credentials, _ *http.Client, hasService bool) {
	role := &credentials.IAM{}
	var providers []credentials.Provider
	if profile == "" {
		providers = append(providers, &credentials.EnvAWS{})
		if os.Getenv("AWS_WEB_IDENTITY_TOKEN_FILE") != "" {
			role.Endpoint = os.Getenv("AWS_ENDPOINT_URL_STS")
			providers = append(providers, role)
			hasService = true
		}
	}
	providers = append(providers, &credentials.FileAWSCredentials{Profile: profile})
	hasContainerRole := os.Getenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") != "" ||
		os.Getenv("AWS_CONTAINER_CREDENTIALS_FULL_URI") != ""
	hasMachineRole := aws && os.Getenv("AWS_EC2_METADATA_DISABLED") != "true"
	if profile == "" {
		hasService = hasService || hasContainerRole
		if hasContainerRole || hasMachineRole {
			providers = append(providers, role)
		}
	}
	client := &http.Client{Timeout: 5 * time.Second}
	return credentials.NewChainCredentials(providers), client, hasService
}
