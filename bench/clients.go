package bench

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/goatnote-inc/robocache/bench/runners"
)

// clientVariable returns the name of an environment variable of a client. Without a suffix, it
// holds the folders of the client's checkouts. With suffix _PYTHON, it names an interpreter.
func clientVariable(client, suffix string) string {
	return "ROBOCACHE_CLIENT_" + strings.ToUpper(client) + suffix
}

// clientRunner returns a runner of a case of `robocache-bench clients`: the client's own loader, or
// RoboCache in the client's environment.
func (w *CaseWork) clientRunner(c *tableCase, name string) (Runner, error) {
	p := caseTables().Kinds[c.Name][name]
	p.Run = "clients.py"
	p.Python = os.Getenv(clientVariable(c.Name, "_PYTHON"))
	j := Workload{
		URI:       filepath.Join(w.Sets.URI, c.Data),
		BatchSize: w.BatchSize,
		Workers:   w.Workers,
		Seconds:   w.Seconds,
		Seed:      w.Seed,
	}
	r, err := p.newRunner(name, j, &w.Tools)
	if err != nil {
		return r, err
	}
	r.Job.More["case"] = c.Name
	r.Env = w.Tools.Env(os.Getenv(clientVariable(c.Name, "")))
	return r, nil
}

// reasonToSkip returns why a client cannot run here, or "" if it can. A client whose checkout is
// named must run; its errors are failures.
func (w *CaseWork) reasonToSkip(ctx context.Context, f *family) string {
	if f.format == nil || f.format.Package == "" {
		return ""
	}
	folders, python := clientVariable(f.Name, ""), clientVariable(f.Name, "_PYTHON")
	if os.Getenv(folders) != "" {
		return ""
	}
	interpreter := cmp.Or(os.Getenv(python), w.Tools.Python)
	code := "import " + f.format.Package
	if _, err := runners.Output(ctx, []string{interpreter, "-c", code}, nil); err == nil {
		return ""
	}
	return fmt.Sprintf("%s: %s is not installed in %s. Set %s to its checkout, and %s to an "+
		"interpreter with its packages.", f.Name, f.format.Package, interpreter, folders, python)
}
