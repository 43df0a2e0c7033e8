package submit

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache/store/tests/servers"
)

// cluster is a real Slurm controller with two nodes on this machine.
type cluster struct {
	t     *testing.T
	dir   string
	nodes map[string]*exec.Cmd
}

// slurmConf makes a node fail after SlurmdTimeout. cred_expire lets a requeued job start again
// after some seconds instead of two minutes.
const slurmConf = `ClusterName=rc
SlurmctldHost=%[2]s(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=cred_expire=5,socket=%[1]s/munge.socket
SlurmctldPort=16817
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
ReturnToService=2
StateSaveLocation=%[1]s/state
SlurmdSpoolDir=%[1]s/spool-%%n
SlurmctldPidFile=%[1]s/slurmctld.pid
SlurmdPidFile=%[1]s/slurmd-%%n.pid
SlurmctldLogFile=%[1]s/slurmctld.log
SlurmdLogFile=%[1]s/slurmd-%%n.log
SchedulerType=sched/backfill
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmctldTimeout=30
SlurmdTimeout=10
InactiveLimit=0
MinJobAge=600
KillWait=5
Waittime=0
MaxArraySize=%[3]d
SchedulerParameters=batch_sched_delay=0,sched_interval=2,bf_interval=2
%[4]s
NodeName=n1 NodeHostname=%[2]s NodeAddr=127.0.0.1 Port=17001 State=UNKNOWN
NodeName=n2 NodeHostname=%[2]s NodeAddr=127.0.0.1 Port=17002 State=UNKNOWN
PartitionName=main Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
`

const (
	smallNodes = "NodeName=DEFAULT CPUs=2 CoresPerSocket=2 RealMemory=2000"
	// largeNodes declares more resources than this machine has.
	largeNodes = "SlurmdParameters=config_overrides\nGresTypes=gpu\nNodeName=DEFAULT CPUs=16 " +
		"CoresPerSocket=16 RealMemory=300000 Gres=gpu:1"
)

// startCluster starts the daemons. The test is skipped if they are not installed ('make engines'
// installs them) or may not be started.
func startCluster(t *testing.T, maxArray int, nodes string) *cluster {
	t.Helper()
	for _, p := range []string{"munged", "slurmctld", "slurmd", "sbatch"} {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("no Slurm here: %v ('make engines' installs it)", err)
		}
	}
	if os.Getuid() != 0 {
		t.Skip("the nodes of this test are started by root")
	}
	// The ports are fixed, so a machine can run one cluster at a time.
	alone, err := os.OpenFile(
		filepath.Join(os.TempDir(), "robocache-slurm-test.lock"),
		os.O_CREATE|os.O_RDWR,
		0o600,
	)
	if err == nil {
		err = syscall.Flock(int(alone.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { alone.Close() })
	c := &cluster{t, t.TempDir(), map[string]*exec.Cmd{}}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	host, _, _ = strings.Cut(host, ".")
	if _, err := user.Lookup("munge"); err != nil {
		t.Skip(err)
	}
	for p := c.dir; p != "/" && p != os.TempDir(); p = filepath.Dir(p) {
		_ = os.Chmod(p, 0o755) // munged rejects folders that others can write
	}
	for _, d := range []string{"state", "spool-n1", "spool-n2"} {
		if err := os.Mkdir(filepath.Join(c.dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	conf := filepath.Join(c.dir, "slurm.conf")
	if err := os.WriteFile(conf, fmt.Appendf(nil, slurmConf, c.dir, host, maxArray, nodes),
		0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(c.dir, "gres.conf"), []byte("Name=gpu File=/dev/null\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SLURM_CONF", conf)
	// After the daemons have ended, kill tasks of failed tests, and steps that still contact the
	// controller.
	t.Cleanup(func() {
		for _, pid := range running("SLURM_CONF=" + conf) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	key := filepath.Join(c.dir, "munge.key")
	if err := os.WriteFile(key, []byte(strings.Repeat("not a secret: of this test alone", 4)),
		0o600); err != nil {
		t.Fatal(err)
	}
	c.daemon(
		"munged",
		"--foreground",
		"--force",
		"--key-file="+key,
		"--socket="+c.dir+"/munge.socket",
		"--pid-file="+c.dir+"/munge.pid",
		"--log-file="+c.dir+"/munge.log",
		"--seed-file="+c.dir+"/munge.seed",
	)
	c.daemon("slurmctld", "-D", "-i", "-f", conf)
	for _, n := range []string{"n1", "n2"} {
		c.nodes[n] = c.daemon("slurmd", "-D", "-N", n, "-f", conf)
	}
	c.wait(
		40*time.Second,
		"two idle nodes",
		func() bool { return c.out("sinfo", "-h", "-o", "%D %t") == "2 idle" },
	)
	return c
}

// daemon starts a program in a separate session and kills the session after the test. If the tests
// time out, only the program is killed.
func (c *cluster) daemon(name string, args ...string) *exec.Cmd {
	log, err := os.Create(
		filepath.Join(c.dir, fmt.Sprintf("%s-%d.out", name, time.Now().UnixNano())),
	)
	if err != nil {
		c.t.Fatal(err)
	}
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = log, log, &syscall.SysProcAttr{Setsid: true}
	if err := servers.Begin(cmd); err != nil {
		c.t.Skipf("%s does not start here: %v", name, err)
	}
	c.t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
		if b, err := os.ReadFile(log.Name()); err == nil && c.t.Failed() &&
			os.Getenv("SLURM_TEST_LOGS") != "" {
			c.t.Logf("%s:\n%.3000s", name, b)
		}
	})
	return cmd
}

func (c *cluster) out(name string, args ...string) string {
	b, _ := exec.Command(name, args...).CombinedOutput()
	return strings.TrimSpace(string(b))
}

func (c *cluster) wait(most time.Duration, what string, until func() bool) {
	c.t.Helper()
	for end := time.Now().Add(most); !until(); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(end) {
			c.t.Fatalf(
				"no %s within %v:\n%s\n%s",
				what,
				most,
				c.out("sinfo", "-N", "-l"),
				c.out("squeue", "-o", "%i %j %t %R %N"),
			)
		}
	}
}

// running lists the processes whose initial environment contains all of these texts.
func running(texts ...string) (pids []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
next:
	for _, f := range files {
		b, _ := os.ReadFile(f) // fails for a process that has ended
		for _, text := range texts {
			if !strings.Contains("\x00"+string(b), text) {
				continue next
			}
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// kill ends a node like a power failure: its daemon, and its tasks with their parent processes.
func (c *cluster) kill(node string) (tasks int) {
	c.t.Helper()
	_ = syscall.Kill(-c.nodes[node].Process.Pid, syscall.SIGKILL)
	var pids []int
	for _, pid := range running("\x00SLURMD_NODENAME="+node+"\x00", c.dir) {
		// fails for a process that has ended
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		_, rest, ok := strings.Cut(string(stat), ") ")
		if !ok {
			continue
		}
		var state string
		var parent int
		if _, err := fmt.Sscan(rest, &state, &parent); err != nil {
			c.t.Fatal(err)
		}
		if name,
			_ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", parent)); strings.HasPrefix(string(name),
			"slurmstepd") {
			pids = append([]int{parent}, pids...) // first, because it would inform the controller
			tasks++
		}
		pids = append(pids, pid)
	}
	for _, p := range pids {
		_ = syscall.Kill(p, syscall.SIGKILL)
	}
	return tasks
}

func (c *cluster) drained() {
	c.t.Helper()
	c.wait(3*time.Minute, "empty queue", func() bool { return c.out("squeue", "-h") == "" })
}

func (c *cluster) state(job string) string {
	_, s, _ := strings.Cut(c.out("scontrol", "show", "job", job), "JobState=")
	s, _, _ = strings.Cut(s, " ")
	return s
}

// submitted writes and submits the missing shards.
func submitted(t *testing.T, s *Slurm) []string {
	t.Helper()
	if err := s.Write(t.Context()); err != nil {
		t.Fatal(err)
	}
	jobs, err := s.Submit(t.Context())
	if err != nil || len(jobs) != len(s.Arrays())+1 {
		t.Fatalf("%v %v", jobs, err)
	}
	return jobs
}

// TestSlurm runs a real controller with a small MaxArraySize: several arrays in sequence, a task
// that is retried, and a task with skipped episodes.
func TestSlurm(t *testing.T) {
	c := startCluster(t, 5, smallNodes)
	dir, program := worker(t, 12, map[int]string{1: "75", 4: "3"})
	put(t, filepath.Join(dir, "skipped"), "")
	s := &Slurm{
		Plan:     look(t, dir, program),
		Name:     "robocache",
		Out:      filepath.Join(dir, "the jobs"),
		Logs:     "logs",
		Retries:  2,
		Parallel: 4,
	}
	begin := time.Now()
	jobs := submitted(t, s)
	if s.MaxArray != 5 || len(jobs) != 4 {
		t.Errorf("the cluster's MaxArraySize is 5: %d, %v", s.MaxArray, jobs)
	}
	c.drained()
	t.Logf("12 shards in 3 arrays, one requeued, and the commit: %v", time.Since(begin))
	log := calls(t, dir)
	if log[len(log)-1] != "commit partial=" || count(log, "run 1") != 2 || len(log) != 14 {
		t.Errorf("%q", log)
	}
	if state := c.state(jobs[3]); state != "COMPLETED" {
		t.Errorf("commit with skipped episodes: %s", state)
	}
	text, err := os.ReadFile(filepath.Join(s.Out, "logs", "robocache-"+jobs[0]+"_1.log"))
	if err != nil || !strings.Contains(string(text), "shard 1: exit code 75, will be retried") {
		t.Errorf("%v %s", err, text)
	}
}

// TestSlurmFinal checks that a shard with a final failure is not retried and that the dependent
// commit is canceled. The missing shards are then submitted again.
func TestSlurmFinal(t *testing.T) {
	c := startCluster(t, 1001, smallNodes)
	dir, program := worker(t, 4, map[int]string{2: "42"})
	s := &Slurm{
		Plan:    look(t, dir, program),
		Name:    "robocache",
		Out:     filepath.Join(dir, "jobs"),
		Logs:    dir,
		Retries: 2,
	}
	jobs := submitted(t, s)
	c.drained()
	if log := calls(t, dir); count(log, "run 2") != 1 || count(log, "commit partial=") != 0 ||
		c.state(jobs[1]) != "CANCELLED" || c.state(jobs[0]+"_2") != "FAILED" {
		t.Errorf("%q, %s, %s", log, c.state(jobs[1]), c.state(jobs[0]+"_2"))
	}
	s.Plan = look(t, dir, program)
	if a := s.Arrays(); len(a) != 1 || a[0].Indices != "2" {
		t.Errorf("%v", a)
	}
	jobs = submitted(t, s)
	c.drained()
	if log := calls(t, dir); count(log, "run 2") != 2 || count(log, "commit partial=") != 1 ||
		c.state(jobs[1]) != "COMPLETED" {
		t.Errorf("%q", log)
	}
}

// TestSlurmCancelled checks that a task that was canceled with scancel does not requeue itself.
func TestSlurmCancelled(t *testing.T) {
	c := startCluster(t, 1001, smallNodes)
	dir, program := worker(t, 2, nil)
	put(t, filepath.Join(dir, "sleep"), "300")
	put(t, filepath.Join(dir, "log"), "")
	s := &Slurm{
		Plan:    look(t, dir, program),
		Name:    "robocache",
		Out:     filepath.Join(dir, "jobs"),
		Logs:    dir,
		Retries: 2,
	}
	jobs := submitted(t, s)
	c.wait(20*time.Second, "two tasks", func() bool { return len(calls(t, dir)) == 2 })
	time.Sleep(time.Second)
	c.out("scancel", jobs[0])
	c.drained()
	time.Sleep(3 * time.Second)
	if log := calls(t, dir); count(log, "run 0") != 1 || count(log, "commit partial=") != 0 ||
		c.out("squeue", "-h", "-o", "%i %t %r") != "" {
		t.Errorf("%q; %s; %s", log, c.out("squeue", "-h", "-o", "%i %t %r"), c.state(jobs[0]+"_0"))
	}
}

// TestSlurmSignalAndDeadNode checks that the worker stops when Slurm signals the shell before a
// time limit, and that its shard is retried. Then a node dies, and the other node runs its shards.
func TestSlurmSignalAndDeadNode(t *testing.T) {
	if testing.Short() {
		t.Skip("Slurm misses a node after half a minute")
	}
	c := startCluster(t, 1001, smallNodes)
	dir, program := worker(t, 6, nil)
	put(t, filepath.Join(dir, "sleep"), "300")
	put(t, filepath.Join(dir, "log"), "")
	s := &Slurm{
		Plan:    look(t, dir, program),
		Name:    "robocache",
		Out:     filepath.Join(dir, "jobs"),
		Logs:    dir,
		Retries: 2,
	}
	jobs := submitted(t, s)
	c.wait(20*time.Second, "four tasks", func() bool { return len(calls(t, dir)) == 4 })
	time.Sleep(time.Second)
	// scancel signals, and then retries while the job returns to the queue.
	signal := func(id string) { c.out("timeout", "3", "scancel", "-b", "-s", "USR1", id) }
	signal(jobs[0] + "_0")
	c.wait(
		20*time.Second,
		"worker that stops",
		func() bool { return count(calls(t, dir), "asked 0") == 1 },
	)
	c.wait(20*time.Second, "task in its place", func() bool { return len(calls(t, dir)) == 6 })
	time.Sleep(time.Second)
	put(t, filepath.Join(dir, "sleep"), "0.1")
	begin := time.Now()
	if n := c.kill("n2"); n == 0 {
		t.Error("nothing ran on n2")
	}
	// These jobs would otherwise continue to sleep.
	for _, id := range strings.Fields(c.out("squeue", "-h", "-w", "n1", "-t", "R", "-o", "%i")) {
		signal(id)
	}
	c.drained()
	t.Logf("a dead node: all done after %v", time.Since(begin))
	if log := calls(t, dir); count(log, "commit partial=") != 1 || c.state(jobs[1]) != "COMPLETED" {
		t.Errorf("%q %s", log, c.state(jobs[1]))
	}
	for i := range 6 {
		if b, err := os.ReadFile(filepath.Join(dir, "receipts", fmt.Sprint(i))); err != nil ||
			!strings.Contains(string(b), " n1 ") {
			t.Errorf("shard %d: %v %s", i, err, b)
		}
	}
}
