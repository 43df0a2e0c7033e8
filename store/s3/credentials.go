package s3

import (
	"net/http"
	"os"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"
)

// credentialChain returns credentials from the sources that AWS tools use. named reports whether
// the environment names a service that provides them. The machine's own role is requested only for
// AWS, because other servers have none.
func credentialChain(
	profile string,
	aws bool,
) (_ *credentials.Credentials, _ *http.Client, named bool) {
	role := &credentials.IAM{}
	var providers []credentials.Provider
	if profile == "" {
		providers = append(providers, &credentials.EnvAWS{})
		if os.Getenv("AWS_WEB_IDENTITY_TOKEN_FILE") != "" {
			role.Endpoint = os.Getenv("AWS_ENDPOINT_URL_STS")
			providers = append(providers, role)
			named = true
		}
	}
	providers = append(providers, &credentials.FileAWSCredentials{Profile: profile})
	hasContainerRole := os.Getenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") != "" ||
		os.Getenv("AWS_CONTAINER_CREDENTIALS_FULL_URI") != ""
	hasMachineRole := aws && os.Getenv("AWS_EC2_METADATA_DISABLED") != "true"
	if profile == "" {
		named = named || hasContainerRole
		if hasContainerRole || hasMachineRole {
			providers = append(providers, role)
		}
	}
	client := &http.Client{Timeout: 5 * time.Second}
	return credentials.NewChainCredentials(providers), client, named
}
