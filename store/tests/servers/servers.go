// Package servers starts real servers for tests: versitygw (S3) and fake-gcs-server (Google Cloud Storage), as `make servers` builds them.
package servers

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// Key and Secret open the S3 server.
const (
	Key    = "robocachetest"
	Secret = "hunter2hunter2secret"
)

// binary finds a server, or skips the test with the way to get it.
func binary(t testing.TB, name string) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
	}
	path := filepath.Join(dir, ".build", "servers", name)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("%s is not built: make servers", name)
	}
	return path
}

// start runs a server until the test ends, once it answers at url.
func start(t testing.TB, url string, env []string, command ...string) {
	t.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(), env...)
	var log lockedBuffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		resp, err := http.Get(url)
		if err == nil {
			resp.Body.Close()
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s does not answer: %v\n%s", command[0], err, log.String())
		}
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// S3 starts versitygw over a new folder, in which each folder is a bucket, and gives the folder and the server's URL. The environment
// of the test has the credentials.
func S3(t testing.TB) (dir, url string) {
	t.Helper()
	bin := binary(t, "versitygw")
	dir = t.TempDir()
	addr := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	start(t, "http://"+addr, []string{"ROOT_ACCESS_KEY=" + Key, "ROOT_SECRET_KEY=" + Secret}, bin, "--port", addr, "posix", dir)
	Credentials(t)
	return dir, "http://" + addr
}

// Credentials sets the environment to those of the S3 server, and to no others.
func Credentials(t testing.TB) {
	t.Helper()
	for k, v := range map[string]string{"AWS_ACCESS_KEY_ID": Key, "AWS_SECRET_ACCESS_KEY": Secret, "AWS_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true",
		"AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull, "AWS_PROFILE": "", "AWS_SESSION_TOKEN": "", "AWS_ENDPOINT_URL": "", "AWS_ENDPOINT_URL_S3": ""} {
		t.Setenv(k, v)
	}
}

// GCS starts fake-gcs-server over nothing and gives its URL.
func GCS(t testing.TB) (url string) {
	t.Helper()
	bin := binary(t, "fake-gcs-server")
	port := freePort(t)
	url = fmt.Sprintf("http://127.0.0.1:%d", port)
	start(t, url, nil, bin, "-scheme", "http", "-host", "127.0.0.1", "-port", fmt.Sprint(port), "-backend", "memory", "-public-host", fmt.Sprintf("127.0.0.1:%d", port), "-external-url", url)
	return url
}
