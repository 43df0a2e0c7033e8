package architecture

import (
	"bufio"
	"bytes"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// exact lists the packages whose results must have the same bits on every processor.
var exact = []string{
	"",
	"align",
	"kernel",
	"kernel/cpu",
	"kernel/cuda",
	"mapping",
	"stats",
	"vector",
}

// fused lists the functions of these packages in which Go on arm64 may fuse a product into a sum,
// and why the results do not change.
var fused = map[string]string{
	"kernel.fma64":                          "math.FMA",
	"kernel.(*resampleRun).angleRow":        "math.FMA",
	"kernel/cpu.bracketGo":                  "math.FMA",
	"kernel/cpu.lerpWide[go.shape.float32]": "math.FMA",
	"kernel/cpu.lerpWide[go.shape.float64]": "math.FMA",
	"kernel.FMA32":                          "the product of two float32 is exact in float64",
	"kernel.fma32Odd":                       "the product of two float32 is exact in float64",
	"kernel.(*resampleRun).lerpColumns": "math.FMA, and the product of two float32 is exact " +
		"in float64",
	"kernel.(*resampleRun).lerpDense":     "the product of two float32 is exact in float64",
	"kernel.eulerOrder.nearestAngles":     "doubling is exact",
	"kernel/cuda.threadsFor":              "the size of a launch, no value",
	"kernel/cuda.(*voxelParams).setQuick": "a small integer by a power of two is exact",
}

var (
	function    = regexp.MustCompile(`^` + module + `(\S*) STEXT`)
	instruction = regexp.MustCompile(`\((\S+:\d+)\)\tFN?M(?:ADD|SUB)[SD]\t`)
)

// TestNoFusedProducts inspects the compiler's output for arm64. If a product feeds a sum, it must
// be rounded by an explicit conversion, float32(a*b) + c. The packages are compiled without cgo,
// which none of them uses.
func TestNoFusedProducts(t *testing.T) {
	args := []string{"build", "-gcflags=-S"}
	for _, p := range exact {
		args = append(args, strings.TrimSuffix(module+"/"+p, "/"))
	}
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH=arm64", "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out[max(0, len(out)-2000):])
	}
	unseen, name, functions := maps.Clone(fused), "", 0
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		if m := function.FindSubmatch(lines.Bytes()); m != nil {
			name = strings.TrimLeft(string(m[1]), "/.")
			functions++
		} else if m := instruction.FindSubmatch(lines.Bytes()); m != nil {
			if delete(unseen, name); fused[name] == "" {
				t.Errorf(
					"%s fuses a product into a sum at %s on arm64: write float64(a*b) + c or "+
						"float32(a*b) + c",
					name,
					m[1],
				)
			}
		}
	}
	if functions < 1000 {
		t.Errorf("only %d functions were seen", functions)
	}
	if len(unseen) > 0 {
		t.Errorf("allowed, and fused no more: %v", slices.Sorted(maps.Keys(unseen)))
	}
}
