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
	var in []credentials.Provider
	if profile == "" {
		in = append(in, &credentials.EnvAWS{})
		if os.Getenv("AWS_WEB_IDENTITY_TOKEN_FILE") != "" {
			role.Endpoint = os.Getenv("AWS_ENDPOINT_URL_STS")
			in, named = append(in, role), true
		}
	}
	in = append(in, &credentials.FileAWSCredentials{Profile: profile})
	container := os.Getenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") +
		os.Getenv("AWS_CONTAINER_CREDENTIALS_FULL_URI")
	if profile == "" &&
		(container != "" || aws && os.Getenv("AWS_EC2_METADATA_DISABLED") != "true") {
		in = append(in, role)
	}
	client := &http.Client{Timeout: 5 * time.Second}
	return credentials.NewChainCredentials(in), client, named || profile == "" && container != ""
}
