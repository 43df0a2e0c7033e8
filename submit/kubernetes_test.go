package submit

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/goatnote-inc/robocache"
)

func indexed() *Kubernetes {
	return &Kubernetes{
		Plan: Plan{
			Manifest: "s3://bucket/it's \"a\": plan.json",
			Total:    2048,
		},
		Name:           "rtx",
		Namespace:      "robots",
		Image:          "registry:5000/robocache:1",
		ServiceAccount: "reader",
		Parallel:       64,
		Retries:        5,
		Wait:           24 * time.Hour,
		CPU:            "2",
		Memory:         "8Gi",
		GPUs:           "1",
		Scratch:        "32Gi",
		EnvFrom:        []string{"s3-keys"},
		Claims:         []string{"data:/data"},
	}
}

// TestKubernetes compares the generated YAML with a golden file and checks that arguments are
// unchanged.
func TestKubernetes(t *testing.T) {
	k := indexed()
	text, err := k.YAML()
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "jobs.yaml", text)
	type job struct {
		Kind string
		Spec struct {
			Completions, Parallelism int
			Template                 struct {
				Spec struct {
					Containers []struct {
						Args      []string
						Resources struct{ Limits map[string]string }
					}
				}
			}
		}
	}
	k.Manifest = "$(HOME)"
	if b, err := k.YAML(); err != nil || bytes.Count(b, []byte(`"$$(HOME)"`)) != 2 {
		t.Errorf("%v: a variable of Kubernetes", err)
	}
	k.Manifest = indexed().Manifest
	var run, commit job
	d := yaml.NewDecoder(bytes.NewReader(text))
	if err := errors.Join(d.Decode(&run), d.Decode(&commit)); err != nil {
		t.Fatal(err)
	}
	a, b := run.Spec.Template.Spec.Containers[0], commit.Spec.Template.Spec.Containers[0]
	if run.Spec.Completions != 2048 ||
		!slices.Equal(a.Args, []string{"submit", "task", "--", "run", "--manifest", k.Manifest}) ||
		a.Resources.Limits["nvidia.com/gpu"] != "1" ||
		len(b.Resources.Limits) != 1 ||
		b.Args[2] != "--wait" {
		t.Errorf("%+v %+v", run, commit)
	}
	for want, change := range map[string]func(k *Kubernetes){
		"--name": func(k *Kubernetes) {
			k.Name = "Not_DNS"
		}, "--image": func(k *Kubernetes) {
			k.Image = ""
		}, "--memory": func(k *Kubernetes) { k.Memory = "lots" },
		"--gpus": func(k *Kubernetes) {
			k.GPUs = "amd.com/gpu=" + "x"
		}, "--volume": func(k *Kubernetes) {
			k.Claims = []string{
				"data",
			}
		}, "--parallel": func(k *Kubernetes) { k.Parallel = 0 },
	} {
		k := indexed()
		change(k)
		if _, err := k.YAML(); !errors.Is(err, robocache.ErrMisuse) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// TestKubernetesSchema checks the Jobs against the strict schemas of Kubernetes since the release
// with stable retries by index. It also checks that a misspelled key is rejected.
func TestKubernetesSchema(t *testing.T) {
	python, err := filepath.Abs("../.venv/bin/python")
	if err != nil {
		t.Fatal(err)
	}
	if err := exec.Command(python, "-c", "import kubernetes_validate").Run(); err != nil {
		t.Skip("no kubernetes-validate ('make peers' installs it): ", err)
	}
	dir := t.TempDir()
	if err := indexed().Write(dir); err != nil {
		t.Fatal(err)
	}
	validate := func(files ...string) error {
		out, err := exec.Command(python, append([]string{"-c", `
import sys, yaml, kubernetes_validate as k
for version in ("1.33", "1.35", "1.37"):
    for name in sys.argv[1:]:
        for d in yaml.safe_load_all(open(name)): k.validate(d, version, strict=True)
`}, files...)...).CombinedOutput()
		if err != nil {
			return errors.New(lastLine(string(out)))
		}
		return nil
	}
	run := filepath.Join(dir, "run.yaml")
	if err := validate(run, filepath.Join(dir, "commit.yaml")); err != nil {
		t.Error(err)
	}
	text, err := os.ReadFile(run)
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range [][2]string{
		{"backoffLimitPerIndex", "backOffLimitPerIndex"},
		{"readOnlyRootFilesystem: true", "readOnlyRootFilesystem: yes please"},
		{"operator: In, ", ""},
	} {
		put(t, run, strings.Replace(string(text), change[0], change[1], 1))
		if validate(run) == nil {
			t.Errorf("%v passes", change)
		}
	}
	b, err := os.ReadFile(filepath.Join(dir, "kustomization.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "kustomization.yaml", b)
}
