package s3

import (
	"net/http"
	"os"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"
)

// chain looks for credentials where the tools of AWS do; named: the environment names a service
// that gives them. Of a machine's own role it asks for AWS alone: elsewhere there is none to ask.
func chain(profile string, aws bool) (_ *credentials.Credentials, _ *http.Client, named bool) {
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
	container := os.Getenv(
		"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
	) + os.Getenv(
		"AWS_CONTAINER_CREDENTIALS_FULL_URI",
	)
	if profile == "" &&
		(container != "" || aws && os.Getenv("AWS_EC2_METADATA_DISABLED") != "true") {
		in = append(in, role)
	}
	return credentials.NewChainCredentials(
			in,
		), &http.Client{
			Timeout: 5 * time.Second,
		}, named ||
			profile == "" && container != ""
}
