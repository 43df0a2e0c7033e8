package submit

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// plane is a client of a control plane that the test started.
type plane struct {
	t      *testing.T
	url    string
	client http.Client
}

// startPlane starts etcd, an apiserver and a controller-manager, which scripts/tests/kubernetes.sh
// builds.
func startPlane(t *testing.T) *plane {
	t.Helper()
	bin := os.Getenv("ROBOCACHE_KUBERNETES")
	if bin == "" {
		t.Skip(
			"a control plane takes six minutes to build: scripts/tests/kubernetes.sh DIR, " +
				"then ROBOCACHE_KUBERNETES=DIR",
		)
	}
	dir := t.TempDir()
	port := func() int {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		return l.Addr().(*net.TCPAddr).Port
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	file := func(name, text string) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	sign := file(
		"key.pem",
		string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})),
	)
	verify := file(
		"pub.pem",
		string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})),
	)
	tokens := file("tokens.csv", "a-token-of-this-test,admin,admin,system:masters\n")
	etcd, api := port(), port()
	p := &plane{t: t, url: fmt.Sprintf("https://127.0.0.1:%d", api)}
	// The control plane has a self-signed certificate.
	p.client = http.Client{
		Timeout:   30 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
	}
	kubeconfig := file(
		"kubeconfig",
		fmt.Sprintf(
			`{"apiVersion": "v1", "kind": "Config", "current-context": "x", "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
"clusters": [{"name": "x", "cluster": {"server": %q, "insecure-skip-tls-verify": true}}], "users": [{"name": "x", "user": {"token": "a-token-of-this-test"}}]}`,
			p.url,
		),
	)
	run := func(name string, args ...string) {
		log, err := os.Create(filepath.Join(dir, name+".log"))
		if err != nil {
			t.Fatal(err)
		}
		c := exec.Command(filepath.Join(bin, name), args...)
		c.Stdout, c.Stderr, c.Dir = log, log, dir
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = c.Process.Kill()
			_ = c.Wait()
			if b, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
				t.Logf("%s: %s", name, b[max(0, len(b)-3000):])
			}
		})
	}
	client := fmt.Sprintf("http://127.0.0.1:%d", etcd)
	run(
		"etcd",
		"--data-dir="+dir+"/etcd",
		"--listen-client-urls="+client,
		"--advertise-client-urls="+client,
		fmt.Sprintf("--listen-peer-urls=http://127.0.0.1:%d", port()),
	)
	run(
		"apiserver",
		"--etcd-servers="+client,
		fmt.Sprintf("--secure-port=%d", api),
		"--bind-address=127.0.0.1",
		"--cert-dir="+dir+"/certs",
		"--token-auth-file="+tokens,
		"--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes",
		"--service-account-key-file="+verify,
		"--service-account-signing-key-file="+sign,
		"--service-cluster-ip-range=10.0.0.0/24",
		"--disable-admission-plugins=ServiceAccount",
	)
	begin := time.Now()
	p.wait(2*time.Minute, "ready apiserver", func() bool {
		r, err := p.client.Do(p.request("GET", "/readyz", "", nil))
		if err != nil {
			return false
		}
		defer r.Body.Close()
		return r.StatusCode == 200
	})
	run(
		"manager",
		"--kubeconfig="+kubeconfig,
		"--controllers=job-controller,garbage-collector-controller,namespace-controller",
		fmt.Sprintf("--secure-port=%d", port()),
		"--cert-dir="+dir+"/certs-manager",
		"--leader-elect=false",
	)
	t.Logf("a control plane after %v", time.Since(begin))
	return p
}

func (p *plane) wait(most time.Duration, what string, until func() bool) {
	p.t.Helper()
	for end := time.Now().Add(most); !until(); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(end) {
			p.t.Fatalf("no %s within %v", what, most)
		}
	}
}

func (p *plane) request(method, path, kind string, body []byte) *http.Request {
	r, err := http.NewRequest(method, p.url+path, bytes.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer a-token-of-this-test")
	r.Header.Set("Content-Type", kind)
	r.Header.Set("Accept", "application/json")
	return r
}

// call sends a request and decodes the response into to. It returns the status and the text of the
// response.
func (p *plane) call(method, path, kind string, body []byte, to any) (int, string) {
	p.t.Helper()
	r, err := p.client.Do(p.request(method, path, kind, body))
	if err != nil {
		p.t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err == nil && to != nil {
		err = json.Unmarshal(b, to)
	}
	if err != nil {
		p.t.Fatalf("%s %s: %v: %s", method, path, err, b)
	}
	return r.StatusCode, string(b)
}

type podStatus struct {
	Metadata struct {
		Name, Namespace   string
		Labels            map[string]string
		DeletionTimestamp string
	}
	Spec struct {
		Containers []struct {
			Args []string
			Env  []struct {
				Name      string
				ValueFrom struct{ FieldRef struct{ FieldPath string } }
			}
		}
	}
	Status struct{ Phase string }
}

type jobStatus struct {
	Status struct {
		Active, Succeeded, Failed       int
		CompletedIndexes, FailedIndexes string
		Conditions                      []struct{ Type, Status, Reason, Message string }
	}
}

// kubelet acts as the nodes. It gives each waiting pod the next exit code of its index.
func (p *plane) kubelet(namespace string, code func(index string) int) (ran []string) {
	var list struct{ Items []podStatus }
	p.call("GET", "/api/v1/namespaces/"+namespace+"/pods", "", nil, &list)
	for _, pod := range list.Items {
		if pod.Status.Phase != "Pending" || pod.Metadata.DeletionTimestamp != "" {
			continue
		}
		index, ok := pod.Metadata.Labels["batch.kubernetes.io/job-completion-index"]
		if !ok {
			index = "commit"
		}
		c, phase := code(index), "Succeeded"
		if c < 0 {
			continue // the pod waits
		}
		if c > 0 {
			phase = "Failed"
		}
		body := fmt.Sprintf(
			`{"status": {"phase": %q, "containerStatuses": [{"name": "robocache", "image": "x", "imageID": "x", "ready": false, "restartCount": 0, "state": {"terminated": {"exitCode": %d, "reason": "x", "startedAt": null, "finishedAt": %q}}}]}}`,
			phase,
			c,
			time.Now().UTC().Format(time.RFC3339),
		)
		if status, text := p.call("PATCH", "/api/v1/namespaces/"+namespace+"/pods/"+
			pod.Metadata.Name+
			"/status", "application/merge-patch+json", []byte(body), nil); status != 200 {
			p.t.Fatalf("%d %s", status, text)
		}
		ran = append(ran, fmt.Sprintf("%s=%d", index, c))
	}
	return ran
}

func (p *plane) job(namespace, name string) (j jobStatus) {
	p.call("GET", "/apis/batch/v1/namespaces/"+namespace+"/jobs/"+name, "", nil, &j)
	return j
}

func (j *jobStatus) is(condition string) bool {
	return slices.ContainsFunc(
		j.Status.Conditions,
		func(c struct{ Type, Status, Reason, Message string }) bool {
			return c.Type == condition && c.Status == "True"
		},
	)
}

// TestControlPlane runs the Jobs on a real control plane with simulated nodes. A failed index is
// retried; exit code 42 ends the Job without a retry; the commit follows.
func TestControlPlane(t *testing.T) {
	p := startPlane(t)
	var v struct{ GitVersion string }
	p.call("GET", "/version", "", nil, &v)
	t.Log("Kubernetes ", v.GitVersion)
	apply := func(namespace, name string, yaml []byte) {
		t.Helper()
		// server-side apply, as by kubectl apply --server-side
		for _, dry := range []string{"&dryRun=All", ""} {
			status, text := p.call(
				"PATCH",
				"/apis/batch/v1/namespaces/"+namespace+"/jobs/"+name+
					"?fieldManager=test&fieldValidation=Strict"+dry,
				"application/apply-patch+yaml",
				yaml,
				nil,
			)
			if status != 200 && status != 201 {
				t.Fatalf("%s%s: %d %s", name, dry, status, text)
			}
		}
	}
	for _, c := range []struct {
		namespace string
		codes     map[string][]int
	}{
		{"retried", map[string][]int{"5": {75}, "2": {137}, "commit": {75}}},
		{"final", map[string][]int{"3": {42}, "4": {11}}},
	} {
		t.Run(c.namespace, func(t *testing.T) {
			if status, text := p.call("POST", "/api/v1/namespaces", "application/json",
				[]byte(`{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "`+
					c.namespace+`"}}`), nil); status != 201 {
				t.Fatalf("%d %s", status, text)
			}
			k := indexed()
			k.Namespace, k.Total, k.Parallel, k.Retries, k.ServiceAccount = c.namespace, 8, 3, 2, ""
			dir := t.TempDir()
			if err := k.Write(dir); err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"run", "commit"} {
				text, err := os.ReadFile(filepath.Join(dir, name+".yaml"))
				if err != nil {
					t.Fatal(err)
				}
				apply(c.namespace, "rtx-"+name, text)
				if bad := bytes.Replace(text, []byte("backoffLimit"), []byte("backOfLimit"),
					1); name == "run" {
					if status, _ := p.call("PATCH", "/apis/batch/v1/namespaces/"+c.namespace+
						"/jobs/x?fieldManager=test&fieldValidation=Strict&dryRun=All",
						"application/apply-patch+yaml",
						bytes.Replace(bad, []byte(`"rtx-run"`), []byte(`"x"`), 1), nil); status <
						400 {
						t.Errorf("a misspelt key passes: %d", status)
					}
				}
			}
			begin, done := time.Now(), map[string]bool{}
			var ran []string
			var run, commit jobStatus
			defer func() {
				t.Logf(
					"%.1f s: %v; run %+v; commit %+v",
					time.Since(begin).Seconds(),
					ran,
					run.Status,
					commit.Status,
				)
			}()
			p.wait(2*time.Minute, "end of both Jobs", func() bool {
				ran = append(ran, p.kubelet(c.namespace, func(index string) int {
					if index == "commit" && len(done) < 8 {
						if run.is("Failed") {
							return 42 // as if a person ended it
						}
						return -1 // waits like submit task --wait
					}
					if codes := c.codes[index]; len(codes) > 0 {
						c.codes[index] = codes[1:]
						return codes[0]
					}
					done[index] = true
					return 0
				})...)
				run, commit = p.job(c.namespace, "rtx-run"), p.job(c.namespace, "rtx-commit")
				return (run.is("Complete") || run.is("Failed")) &&
					(commit.is("Complete") || commit.is("Failed"))
			})
			times := func(what string) (n int) {
				for _, r := range ran {
					if strings.HasPrefix(r, what) {
						n++
					}
				}
				return n
			}
			switch c.namespace {
			case "retried":
				if !run.is("Complete") || !commit.is("Complete") ||
					run.Status.CompletedIndexes != "0-7" ||
					times("5=") != 2 ||
					times("2=") != 2 ||
					times("0=") != 1 ||
					times("commit=") != 2 ||
					ran[len(ran)-1] != "commit=0" {
					t.Errorf("%v", ran)
				}
			case "final":
				if !run.is("Failed") || times("3=") != 1 || times("4=") > 1 ||
					!strings.Contains(run.Status.FailedIndexes, "3") ||
					commit.is("Complete") {
					t.Errorf("%v", ran)
				}
			}
		})
	}
	// The pod of a shard: its index and its permissions.
	var list struct{ Items []podStatus }
	p.call(
		"GET",
		"/api/v1/namespaces/retried/pods?labelSelector=batch.kubernetes.io/job-name=rtx-run",
		"",
		nil,
		&list,
	)
	if len(list.Items) == 0 || len(list.Items[0].Spec.Containers[0].Env) == 0 ||
		list.Items[0].Spec.Containers[0].Env[0].Name != "JOB_COMPLETION_INDEX" ||
		list.Items[0].Spec.Containers[0].Args[3] != "run" {
		t.Errorf("%+v", list)
	}
}
