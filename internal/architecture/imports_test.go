// Package architecture tests the rules of the architecture: which package may import which.
package architecture

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/goatnote-inc/robocache"

// allowed lists the packages of the module that each package may import. "" is the root. The
// longest prefix of a package is its rule. "cmd" and "examples" are the last layer: they may import
// every library package, and no package may import them.
var allowed = map[string][]string{
	"":      {},
	"store": {"", "internal/crash"},
	"video": {
		"",
		"store",
		"video/turbojpeg",
		"internal/crash",
		"internal/inflate",
	},
	"video/ffmpeg":    {"", "video"},
	"video/nvdec":     {"", "video", "kernel/cuda", "internal/cudahost", "internal/crash"},
	"video/turbojpeg": {""},
	"video/jpegxl":    {"", "internal/crash"},
	"kernel":          {"", "kernel/resize", "internal/crash"},
	"kernel/resize":   {""},
	"vector":          {"", "kernel"},
	"kernel/cpu":      {"", "kernel"},
	"kernel/cuda":     {"", "kernel", "kernel/resize", "internal/cudahost", "internal/crash"},
	"align": {
		"",
		"kernel",
		"internal/crash",
		"internal/jsonmeta",
		"internal/lru",
	},
	"derive": {""},
	"stats":  {"", "store", "video", "vector", "internal/crash"},
	"format": {
		"",
		"store",
		"video",
		"stats",
		"internal/crash",
		"internal/guard",
		"internal/inflate",
		"internal/jsonmeta",
		"internal/lru",
		"internal/unzstd",
	},
	"format/all": {"format", "store"},
	"cache":      {"", "internal/crash"},
	"loader": {
		"", "align", "video", "loader/internal", "loader/options", "loader/contract",
		"internal/crash",
	},
	"loader/contract":          {"", "loader/options"},
	"loader/internal/frames":   {"", "video", "cache", "store", "loader/internal/buffers"},
	"loader/internal/order":    {""},
	"loader/internal/arrivals": {"", "store", "query", "internal/crash"},
	"loader/options": {
		"vector",
		"",
		"kernel/resize",
		"align",
		"internal/jsonmeta",
		"loader/internal/arrivals",
		"loader/internal/buffers",
		"loader/internal/order",
		"query",
	},
	"loader/internal/buffers": {""},
	"loader/internal/layout":  {"", "loader/internal/buffers"},
	"loader/internal/column": {
		"vector",
		"",
		"align",
		"kernel",
		"video",
		"internal/crash",
		"loader/internal/buffers",
		"loader/internal/frames",
		"loader/internal/layout",
		"loader/options",
		"loader/internal/order",
	},
	"loader/internal/plan": {
		"vector",
		"query",
		"",
		"align",
		"cache",
		"kernel",
		"stats",
		"store",
		"video",
		"loader/contract",
		"loader/internal/column",
		"loader/internal/frames",
		"loader/internal/layout",
		"loader/options",
		"loader/internal/order",
	},
	"loader/internal/pipeline": {
		"",
		"cache",
		"store",
		"video",
		"internal/crash",
		"loader/internal/buffers",
		"loader/internal/column",
		"loader/internal/frames",
		"loader/internal/layout",
		"loader/options",
		"loader/internal/order",
		"loader/internal/plan",
	},
	"live/internal/message": {
		"",
		"video",
		"mapping",
		"format/ros2",
		"live/transport",
		"internal/crash",
	},
	"live": {
		"", "align", "video", "format/mcap", "format/ros2", "loader", "live/internal",
		"live/transport",
	},
	"live/livetest": {
		"", "align", "format/mcap", "loader", "live", "live/transport",
	},
	"live/transport":               {"", "internal/crash"},
	"live/transport/all":           {"live/transport"},
	"live/transport/dds":           {"", "live/transport", "internal/crash", "internal/cudahost"},
	"live/transport/mcap":          {"", "format", "live/transport", "internal/crash"},
	"live/transport/transporttest": {"", "format", "live/transport", "internal/tests"},

	"mapping":  {"", "kernel", "internal/crash", "internal/jsonmeta"},
	"diagnose": {"", "video", "internal/crash"},
	"diff":     {"", "video", "internal/crash"},
	"convert":  {"", "store", "align", "internal/crash"},
	"query":    {"", "store", "quality", "format", "internal/flags", "internal/crash"},
	"edit": {
		"",
		"query",
		"store",
		"video",
		"align",
		"stats",
		"convert",
		"diagnose",
		"mapping",
		"format",
		"internal/flags",
		"internal/jsonmeta",
		"internal/crash",
	},
	"shard": {
		"",
		"store",
		"convert",
		"stats",
		"diagnose",
		"mapping",
		"synth",
		"video",
		"quality",
		"internal/crash",
	},
	"synth": {""},
	"quality": {
		"",
		"store",
		"video",
		"stats",
		"mapping",
		"format",
		"kernel/resize",
		"internal/flags",
		"internal/crash",
	},
	"quality/report": {"", "video", "inspect", "quality"},
	"hub": {
		"",
		"store",
		"store/hf",
		"format",
		"inspect",
		"diagnose",
		"internal/crash",
	},
	"submit":  {"", "shard", "internal/crash"},
	"metrics": {"", "loader", "submit"},
	"selftest": {
		"",
		"video",
		"kernel",
		"align",
		"kernel/cpu",
		"kernel/cuda",
		"internal/cudahost",
		"internal/crash",
	},
	"view": {
		"",
		"store",
		"video",
		"align",
		"diagnose",
		"inspect",
		"quality",
		"query",
		"diff",
		"internal/flags",
		"internal/crash",
		"internal/jsonmeta",
		"internal/lru",
	},
	"inspect": {
		"",
		"store",
		"video",
		"align",
		"stats",
		"format",
		"inspect/chart",
		"internal/crash",
	},
	"inspect/chart": {},
	"verbs": {
		"",
		"store",
		"video",
		"cache",
		"align",
		"stats",
		"mapping",
		"diagnose",
		"diff",
		"convert",
		"query",
		"edit",
		"format/recindex",
		"shard",
		"submit",
		"synth",
		"hub",
		"inspect",
		"live",
		"loader/contract",
		"quality",
		"quality/report",
	},
	"internal/cudahost":     {""},
	"internal/flags":        {"", "store", "internal/jsonmeta", "internal/crash"},
	"internal/crash":        {""},
	"internal/guard":        {"", "internal/crash", "internal/lru"},
	"internal/inflate":      {""},
	"internal/jsonmeta":     {""},
	"internal/lru":          {"", "internal/crash"},
	"internal/unzstd":       {""},
	"internal/architecture": {},
	"internal/tests":        {""},
	"internal/e2e":          {"*"},
	"internal/cli":          {"*"},
	"cmd":                   {"*"},
	"scripts":               {"*"},
	"examples":              {"*"},
}

// leafDecoders lists the packages that may raise errors with internal/guard. They decode bytes and
// have one recover per exported function. All other packages return errors.
var leafDecoders = []string{
	"format/internal/bag",
	"format/internal/h5",
	"format/internal/npy",
	"format/internal/pq",
	"format/internal/zipdir",
	"format/mcap/internal/container",
	"format/rlds",
	"format/ros2",
	"format/zarr/internal/blosc",
	"internal/guard/leafcache",
}

// mayRaise reports whether a package may import internal/guard.
func mayRaise(name string) bool {
	return slices.Contains(leafDecoders, name)
}

type listed struct {
	ImportPath string
	Imports    []string
}

func TestImportsPointLeftwards(t *testing.T) {
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports", module+"/...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	dec := json.NewDecoder(bytes.NewReader(out))
	n := 0
	for {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		n++
		for _, bad := range forbidden(p) {
			t.Errorf(
				"%s imports %s: the arrow points the wrong way (ARCHITECTURE.md, DESIGN section 6)",
				p.ImportPath,
				bad,
			)
		}
	}
	if n < 5 {
		t.Fatalf("only %d packages were looked at", n)
	}
}

// TestRulesCanFail checks that a forbidden import is detected.
func TestRulesCanFail(t *testing.T) {
	for _, p := range []listed{
		{module + "/format/lerobot", []string{module + "/loader"}},
		{module + "/loader", []string{module + "/format/lerobot"}},
		{module + "/loader/internal/order", []string{module + "/loader"}},
		{module + "/loader/internal/frames", []string{module + "/loader"}},
		{module + "/loader/internal/frames", []string{module + "/loader/internal/order"}},
		{module + "/loader/internal/layout", []string{module + "/loader/internal/column"}},
		{module + "/loader/internal/column", []string{module + "/loader/internal/plan"}},
		{module + "/loader/internal/plan", []string{module + "/loader/internal/pipeline"}},
		{module + "/loader/options", []string{module + "/loader/internal/plan"}},
		{module, []string{module + "/store"}},
		{module + "/inspect", []string{module + "/internal/cli"}},
		{module + "/verbs", []string{module + "/internal/cli"}},
		{module + "/convert", []string{module + "/verbs"}},
		{module + "/inspect/chart", []string{module + "/inspect"}},
		{module + "/loader", []string{module + "/bench/report"}},
		{module + "/live/transport/foxglove", []string{module + "/loader"}},
		{module + "/live/transport/foxglove", []string{module + "/format/mcap"}},
		{module + "/live/transport/mcap", []string{module + "/live"}},
		{module + "/newpackage", []string{"fmt"}},
		{module + "/format/lerobot", []string{module + "/internal/guard"}},
	} {
		if len(forbidden(p)) == 0 {
			t.Errorf("%s → %v passed", p.ImportPath, p.Imports)
		}
	}
}

func forbidden(p listed) []string {
	from := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
	rule, rules := packageOf(from)
	if rules == nil {
		return []string{"(this package has no rule in internal/architecture)"}
	}
	var bad []string
	for _, imp := range p.Imports {
		if imp != module && !strings.HasPrefix(imp, module+"/") {
			continue
		}
		to := strings.TrimPrefix(strings.TrimPrefix(imp, module), "/")
		target, _ := packageOf(to)
		if strings.HasPrefix(to, "internal/guard") && !mayRaise(from) {
			bad = append(bad, imp)
		}
		if strings.HasPrefix(to, "cmd") || !permits(rules, to) && target != rule {
			bad = append(bad, imp)
		}
	}
	return bad
}

// packageOf returns the rule of a package, which is its longest known prefix.
func packageOf(path string) (string, []string) {
	for p := path; ; {
		if r, ok := allowed[p]; ok && (p != "" || path == "") {
			return p, r
		}
		i := strings.LastIndexByte(p, '/')
		if i < 0 {
			return "", nil
		}
		p = p[:i]
	}
}

func permits(rules []string, to string) bool {
	for _, r := range rules {
		if r == "*" || r == to || r != "" && strings.HasPrefix(to, r+"/") {
			return true
		}
	}
	return false
}
