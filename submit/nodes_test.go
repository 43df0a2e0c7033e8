package submit

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache/store/tests/servers"
)

// onTwoNodes runs a script in a Ray cluster of two nodes.
const onTwoNodes = `
import runpy, sys
import ray
import ray.cluster_utils
c = ray.cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "object_store_memory": 200_000_000, "include_dashboard": False})
c.add_node(num_cpus=2, object_store_memory=200_000_000)
import os
os.environ["RAY_ADDRESS"] = c.address
sys.argv = sys.argv[1:]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
finally:
    ray.shutdown()
    c.shutdown()
`

var given = regexp.MustCompile(
	`2 ranks gave (\d+) of (\d+) samples; (\d+) twice, (\d+) of them to fill the last step; video read by each: ([\d.]+) MB, ([\d.]+) MB`,
)

// TestNodes runs examples/nodes.py on two nodes with a real S3 server, started by torchrun, by srun
// on a real Slurm, and by Ray Train. Both ranks together read the epoch without duplicates. With a
// pool they share the bytes of the video. Each node has a proxy that counts.
func TestNodes(t *testing.T) {
	if _, err := exec.LookPath("ffmpeg"); err != nil {
		t.Skip("a set with video needs ffmpeg: ", err)
	}
	root, python := withTorch(t)
	call := robo(t)
	bucket, address := servers.S3(t)
	if err := os.Mkdir(filepath.Join(bucket, "lab"), 0o755); err != nil {
		t.Fatal(err)
	}
	// 1,920 samples: 120 steps of 16
	call(
		"synth",
		filepath.Join(bucket, "lab", "set"),
		"--episodes",
		"64",
		"--seconds",
		"1",
		"--cameras",
		"1",
		"--codec",
		"h264",
	)
	video, err := filepath.Glob(filepath.Join(bucket, "lab/set/videos/*/*/*.mp4"))
	if err != nil || len(video) != 1 {
		t.Fatalf("%v %v", video, err)
	}
	stat, err := os.Stat(video[0])
	if err != nil {
		t.Fatal(err)
	}
	size := float64(stat.Size()) / 1e6
	t.Setenv("OMP_NUM_THREADS", "1")
	t.Setenv("AWS_ENDPOINT_URL_S3", address)
	t.Setenv("MASTER_ADDR", "127.0.0.1")
	port := func() string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		_, p, _ := net.SplitHostPort(l.Addr().String())
		return p
	}
	script, path := filepath.Join(root, "examples", "nodes.py"), "s3://lab/set"
	check := func(t *testing.T, out string, by ...*servers.Proxy) {
		t.Helper()
		m := given.FindStringSubmatch(out)
		if m == nil || m[1] != "1920" || m[2] != "1920" || m[3] != "0" || m[4] != "0" {
			t.Fatal(out)
		}
		a, _ := strconv.ParseFloat(m[5], 64)
		b, _ := strconv.ParseFloat(m[6], 64)
		if a+b > 1.15*size || a < size/3 || b < size/3 {
			t.Errorf("the ranks read %v and %v MB of %v MB of video", a, b, size)
		}
		for _, p := range by {
			t.Logf(
				"a node fetched %.2f MB in all, of %.2f MB of video",
				float64(p.Bytes.Swap(0))/1e6,
				size,
			)
			if p.Requests.Load() == 0 {
				t.Error("nothing went over a node's proxy")
			}
		}
		t.Log(strings.TrimSpace(m[0]))
	}
	proxies := []*servers.Proxy{servers.NewProxy(t, address), servers.NewProxy(t, address)}

	t.Run("torchrun", func(t *testing.T) {
		end := port()
		outs := make(chan string, 2)
		for rank, p := range proxies {
			c := exec.Command(
				"timeout",
				"240",
				python,
				"-m",
				"torch.distributed.run",
				"--nnodes",
				"2",
				"--nproc_per_node",
				"1",
				"--node_rank",
				fmt.Sprint(rank),
				"--master_addr",
				"127.0.0.1",
				"--master_port",
				end,
				script,
				path,
			)
			c.Env = append(os.Environ(), "AWS_ENDPOINT_URL_S3="+p.URL)
			go func() {
				out, err := c.CombinedOutput()
				outs <- fmt.Sprintf("%s%v\n", out, err)
			}()
		}
		check(t, <-outs+<-outs, proxies...)
	})
	t.Run("srun", func(t *testing.T) {
		startCluster(t, 1001, smallNodes)
		t.Setenv("MASTER_PORT", port())
		line := fmt.Sprintf(
			"RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS; export RANK WORLD_SIZE; [ $RANK = 0 "+
				"] && AWS_ENDPOINT_URL_S3=%s || AWS_ENDPOINT_URL_S3=%s; echo $RANK on "+
				"$SLURMD_NODENAME; exec %s",
			proxies[0].URL,
			proxies[1].URL,
			Words([]string{python, script, path}),
		)
		out, err := exec.Command(
			"timeout",
			"120",
			"srun",
			"--nodes",
			"2",
			"--ntasks-per-node",
			"1",
			"--export=ALL",
			"sh",
			"-c",
			line,
		).
			CombinedOutput()
		if text := string(out); err != nil || !strings.Contains(text, "0 on n1") ||
			!strings.Contains(text, "1 on n2") {
			t.Fatalf("%v: %s", err, out)
		}
		check(t, string(out), proxies...)
	})
	t.Run("Ray Train", func(t *testing.T) {
		ray := filepath.Join(root, ".build", "ray", "bin", "python")
		if out, err := exec.Command(ray, "-c", "import ray.train.torch, ray.cluster_utils").
			CombinedOutput(); err != nil {
			t.Skipf("no Ray Train ('make engines'): %v: %s", err, lastLine(string(out)))
		}
		c := exec.Command("timeout", "400", ray, "-c", onTwoNodes, script, path, "--ray", "2")
		c.Env = append(os.Environ(), "RAY_TRAIN_V2_ENABLED=1", "HOME="+t.TempDir())
		out, err := c.CombinedOutput()
		if c.ProcessState.ExitCode() == 124 {
			t.Skipf(
				"Ray Train came to no end in 400 s: too slow a machine: %s",
				lastLine(string(out)),
			)
		}
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		check(t, string(out))
	})
}
