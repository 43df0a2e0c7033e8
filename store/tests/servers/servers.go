// Package servers starts servers for tests. `make servers` builds versitygw (S3) and
// fake-gcs-server (Google Cloud Storage). `make peers` installs moto (S3), and `make minio` builds
// MinIO.
package servers

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Key and Secret are the credentials of the S3 server.
const (
	Key    = "robocachetest"
	Secret = "hunter2hunter2secret"
)

// binary returns the path of a program below the checkout. If it is missing, the test is skipped
// with the make target that provides it.
func binary(t testing.TB, name, get string) string {
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
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("no %s: make %s", name, get)
	}
	return path
}

// start runs a server until the test ends. Blocks until the server responds at url.
func start(t testing.TB, url string, env []string, command ...string) {
	t.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(), env...)
	var log lockedBuffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := Begin(cmd); err != nil {
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

// Begin starts a process that ends with this one, even if the tests time out and no Cleanup runs.
// The kernel kills the process when the thread that started it ends. Go may end threads, so Begin
// keeps a locked thread for the process.
func Begin(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	begun := make(chan error)
	go func() {
		runtime.LockOSThread()
		begun <- cmd.Start()
		select {}
	}()
	return <-begun
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

// S3 starts versitygw for a new folder, in which each folder is a bucket. It returns the folder and
// the server's URL. It sets the credentials in the environment of the test.
func S3(t testing.TB) (dir, url string) {
	t.Helper()
	bin := binary(t, ".build/servers/versitygw", "servers")
	dir = t.TempDir()
	addr := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	start(
		t,
		"http://"+addr,
		[]string{"ROOT_ACCESS_KEY=" + Key, "ROOT_SECRET_KEY=" + Secret},
		bin,
		"--port",
		addr,
		"posix",
		dir,
	)
	Credentials(t)
	return dir, "http://" + addr
}

// OtherS3 holds servers that share no code with versitygw. Each function returns the server's URL.
// Buckets are created by requests.
var OtherS3 = map[string]func(t testing.TB) (url string){
	"moto": func(t testing.TB) string {
		bin := binary(t, ".venv/bin/moto_server", "peers")
		port := fmt.Sprint(freePort(t))
		start(t, "http://127.0.0.1:"+port, nil, bin, "-H", "127.0.0.1", "-p", port)
		Credentials(t)
		return "http://127.0.0.1:" + port
	},
	"MinIO": func(t testing.TB) string {
		bin := binary(t, ".build/servers/minio", "minio")
		addr := fmt.Sprintf("127.0.0.1:%d", freePort(t))
		start(
			t,
			"http://"+addr,
			[]string{"MINIO_ROOT_USER=" + Key, "MINIO_ROOT_PASSWORD=" + Secret},
			bin,
			"server",
			"--quiet",
			"--address",
			addr,
			"--console-address",
			"127.0.0.1:0",
			t.TempDir(),
		)
		Credentials(t)
		return "http://" + addr
	},
}

// Credentials sets the environment to the credentials of the S3 server and removes all others.
func Credentials(t testing.TB) {
	t.Helper()
	for k, v := range map[string]string{
		"AWS_ACCESS_KEY_ID":           Key,
		"AWS_SECRET_ACCESS_KEY":       Secret,
		"AWS_REGION":                  "us-east-1",
		"AWS_EC2_METADATA_DISABLED":   "true",
		"AWS_CONFIG_FILE":             os.DevNull,
		"AWS_SHARED_CREDENTIALS_FILE": os.DevNull,
		"AWS_PROFILE":                 "",
		"AWS_SESSION_TOKEN":           "",
		"AWS_ENDPOINT_URL":            "",
		"AWS_ENDPOINT_URL_S3":         "",
	} {
		t.Setenv(k, v)
	}
}

// GCS starts an empty fake-gcs-server and returns its URL.
func GCS(t testing.TB) (url string) {
	t.Helper()
	bin := binary(t, ".build/servers/fake-gcs-server", "servers")
	port := freePort(t)
	url = fmt.Sprintf("http://127.0.0.1:%d", port)
	start(
		t,
		url,
		nil,
		bin,
		"-scheme",
		"http",
		"-host",
		"127.0.0.1",
		"-port",
		fmt.Sprint(port),
		"-backend",
		"memory",
		"-public-host",
		fmt.Sprintf("127.0.0.1:%d", port),
		"-external-url",
		url,
	)
	return url
}
