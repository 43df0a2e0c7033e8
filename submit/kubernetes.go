package submit

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/goatnote-inc/robocache"
)

// Kubernetes writes an Indexed Job for the shards and a Job for the commit, which waits for them.
type Kubernetes struct {
	Plan
	Name, Namespace, Image, ServiceAccount string
	Parallel, Retries                      int
	// maximum wait of the commit for the shards
	Wait time.Duration
	// Requests of a shard. Memory is also its limit.
	CPU, Memory string
	GPUs        string // GPUs of a shard: "1", or resource=1
	Scratch     string // size of /tmp
	// Secrets whose keys become environment variables.
	EnvFrom []string
	Claims  []string // volumes in the form CLAIM:/path
}

var (
	dnsLabel = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
	quantity = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?(m|[kMGT]i?)?$`)
)

// checkOptions rejects options that the control plane would reject.
func (k *Kubernetes) checkOptions() error {
	bad := func(option, want, got string) error {
		return robocache.Misuse("submit kubernetes", robocache.Where{"option": option}, "").
			Expected(want, got)
	}
	_, gpus := k.gpuResource()
	switch {
	case !dnsLabel.MatchString(k.Name) || len(k.Name) > 40:
		return bad("--name", "at most 40 small letters, digits and -", k.Name)
	case k.Image == "" || strings.ContainsAny(k.Image, " \n\t"):
		return bad("--image", "an image", k.Image)
	case k.Parallel < 1 || k.Parallel > 10_000 || k.Total > 100_000:
		return bad("--parallel", "1 to 10000, and at most 100000 shards", "")
	case gpus != "" && !quantity.MatchString(gpus):
		return bad("--gpus", "a number, or resource=number", k.GPUs)
	}
	for option, q := range map[string]string{
		"--cpu":     k.CPU,
		"--memory":  k.Memory,
		"--scratch": k.Scratch,
	} {
		if !quantity.MatchString(q) {
			return bad(option, "a quantity such as 2, 500m or 8Gi", q)
		}
	}
	for _, c := range k.Claims {
		if claim, path, ok := strings.Cut(c, ":"); !ok || !dnsLabel.MatchString(claim) ||
			!strings.HasPrefix(path, "/") {
			return bad("--volume", "CLAIM:/path", c)
		}
	}
	return nil
}

func (k *Kubernetes) gpuResource() (resource, n string) {
	if resource, n, ok := strings.Cut(k.GPUs, "="); ok {
		return resource, n
	}
	return "nvidia.com/gpu", k.GPUs
}

// renderJobs returns the YAML of both Jobs.
func (k *Kubernetes) renderJobs() (run, commit []byte, err error) {
	if err := k.checkOptions(); err != nil {
		return nil, nil, err
	}
	manifest := strings.ReplaceAll(k.Manifest, "$(", "$$(") // Kubernetes would expand "$("
	limits := map[string]string{"memory": k.Memory}
	if k.GPUs != "" {
		resource, n := k.gpuResource()
		limits[resource] = n
	}
	run = k.renderJob(
		"run.yaml",
		[]string{"submit", "task", "--", "run", "--manifest", manifest},
		k.CPU,
		limits,
	)
	commit = k.renderJob(
		"commit.yaml",
		[]string{"submit", "task", "--wait", "--", "commit", "--manifest", manifest},
		"1",
		map[string]string{"memory": k.Memory},
	)
	return run, commit, nil
}

// renderJob returns the YAML of one Job. args, cpu and limits are the arguments, CPU request and
// limits of its pod.
func (k *Kubernetes) renderJob(
	name string,
	args []string,
	cpu string,
	limits map[string]string,
) []byte {
	v := map[string]string{
		"label": yamlText(
			k.Name,
		),
		"image":   yamlText(k.Image),
		"scratch": yamlText(k.Scratch),
		"args":    yamlText(args),
		"requests": yamlText(
			map[string]string{"cpu": cpu, "memory": k.Memory},
		),
		"limits":  yamlText(limits),
		"account": "",
		"secrets": "",
		"mounts":  "",
		"volumes": "",
		"name": yamlText(
			k.Name + "-" + strings.TrimSuffix(name, ".yaml"),
		),
		"final":    finalCodes(", "),
		"deadline": strconv.Itoa(int(k.Wait.Seconds())),
		"total": strconv.Itoa(
			k.Total,
		),
		"parallel": strconv.Itoa(k.Parallel),
		"retries":  strconv.Itoa(k.Retries),
	}
	if k.ServiceAccount != "" {
		v["account"] = "\n      serviceAccountName: " + yamlText(k.ServiceAccount)
	}
	for i, secret := range k.EnvFrom {
		if i == 0 {
			v["secrets"] = "\n        envFrom:"
		}
		v["secrets"] += "\n        - secretRef: {name: " + yamlText(secret) + "}"
	}
	for i, c := range k.Claims {
		claim, path, _ := strings.Cut(c, ":")
		v["mounts"] += fmt.Sprintf("\n        - {name: data%d, mountPath: %s}", i, yamlText(path))
		v["volumes"] += fmt.Sprintf(
			"\n      - {name: data%d, persistentVolumeClaim: {claimName: %s}}",
			i,
			yamlText(claim),
		)
	}
	return append(fillTemplate(name, v), fillTemplate("pod.yaml", v)...)
}

// YAML returns both Jobs for kubectl apply.
func (k *Kubernetes) YAML() ([]byte, error) {
	run, commit, err := k.renderJobs()
	return bytes.Join([][]byte{run, commit}, []byte("---\n")), err
}

// Write writes a folder for kustomize.
func (k *Kubernetes) Write(dir string) error {
	run, commit, err := k.renderJobs()
	if err == nil {
		v := map[string]string{"namespace": ""}
		if k.Namespace != "" {
			v["namespace"] = "\nnamespace: " + yamlText(k.Namespace)
		}
		err = writeTemplates(dir, 0o644, v, "kustomization.yaml")
	}
	for name, text := range map[string][]byte{"run.yaml": run, "commit.yaml": commit} {
		if err == nil {
			err = robocache.At(
				os.WriteFile(filepath.Join(dir, name), text, 0o644),
				robocache.Where{"file": name},
			)
		}
	}
	return err
}
