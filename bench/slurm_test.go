package bench

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func chain() *Slurm {
	return &Slurm{
		Program:   []string{"/opt/robo cache/robocache-bench"},
		URI:       "/data/it's here",
		Scenarios: caseTables().Scenarios,
		Options:   []string{"--duration=1m0s", "--out=$HOME/a b", "--runners=engine,robocache"},
		Account:   "lab",
		Partition: "gpu",
	}
}

// The script is a golden file, so that submissions are reviewed like code.
func TestSlurmScript(t *testing.T) {
	got, path := chain().Script(), "testdata/slurm.sh"
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || string(want) != got {
		t.Errorf("%v\n%s", err, got)
	}
}

// fakeSlurm returns a fake sbatch and its log. It logs its arguments, one per line, and runs the
// wrapped command with a fake srun. Quotes, blanks and dollars must arrive unchanged.
func fakeSlurm(t *testing.T) (bin, log string) {
	t.Helper()
	bin = t.TempDir()
	log = filepath.Join(bin, "log")
	for name, text := range map[string]string{
		"sbatch": "#!/bin/sh\nfor a; do echo \"sbatch $a\" >> '" + log + "'; case $a in " +
			"--wrap=*) sh -c \"${a#--wrap=}\";; esac; done\nn=$(grep -c -- --parsable '" + log +
			"')\necho \"$((100 + n));cluster\"\n",
		"srun": "#!/bin/sh\nshift; shift; SLURM_PROCID=1 SLURM_NTASKS=2 exec \"$@\"\n",
		"robo": "#!/bin/sh\necho \"robo RANK=$RANK WORLD_SIZE=$WORLD_SIZE\" >> '" + log +
			"'; for a; do echo \"robo <$a>\" >> '" + log + "'; done\n",
	} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	return bin, log
}

func TestSlurmSubmits(t *testing.T) {
	for _, how := range []string{"submit", "script"} {
		bin, log := fakeSlurm(t)
		s := chain()
		s.Program = []string{filepath.Join(bin, "robo")}
		if how == "submit" {
			jobs, err := s.Submit(t.Context())
			if err != nil || strings.Join(jobs, " ") != "101 102 103 104 105" {
				t.Fatalf("%v %v", jobs, err)
			}
		} else if out, err := exec.Command("sh", "-c", s.Script()).CombinedOutput(); err != nil ||
			!strings.Contains(string(out), "last job: 105") {
			t.Fatalf("%v: %s", err, out)
		}
		b, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		text := string(b)
		for _, want := range []string{
			"sbatch --job-name=dlbench_stream_bucket_2node\nsbatch --nodes=2\nsbatch " +
				"--ntasks-per-node=1\nsbatch --gpus-per-node=1\nsbatch " +
				"--cpus-per-task=12\nsbatch --mem=250G\nsbatch --time=03:00:00\nsbatch " +
				"--output=%x-%j.out\nsbatch --account=lab\nsbatch --partition=gpu\nsbatch " +
				"--dependency=afterany:104",
			"robo </data/it's here>\n",
			"robo <--out=$HOME/a b/stream_hub>\n",
			"robo <--scenario>\nrobo <mmap_local>\n",
			"robo RANK=1 WORLD_SIZE=2\n", "robo RANK= WORLD_SIZE=\n",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: the log lacks %q:\n%s", how, want, text)
			}
		}
		if n := strings.Count(text, "--dependency="); n != 4 {
			t.Errorf("%s: %d dependencies", how, n)
		}
	}
}

func TestSlurmWithoutSbatch(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := chain().Submit(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "dry-run") {
		t.Errorf("%v", err)
	}
}

func TestSlurmCPUs(t *testing.T) {
	s := chain()
	s.Workers = 6
	s.Scenarios = s.Scenarios[:1]
	if a := s.Script(); !strings.Contains(a, "--cpus-per-task=10 ") ||
		strings.Contains(a, "dependency") {
		t.Error(a)
	}
}
