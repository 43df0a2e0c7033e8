package reader

import (
	"fmt"

	"github.com/goatnote-inc/robocache"
)

// maxLacking bounds the findings about streams that episodes lack.
const maxLacking = 1000

// LackingFindings collects findings about streams that episodes lack (see
// robocache.Capabilities.Lacks). The last finding counts those above the bound.
type LackingFindings struct {
	list  []robocache.Finding
	count int
}

// Add adds the finding of an episode that lacks stream f, whose name in the file is name.
func (l *LackingFindings) Add(f *robocache.Feature, where robocache.Where, name string) {
	if l.count++; l.count > maxLacking {
		return
	}
	severity := robocache.SeverityWarning
	if robocache.Vital(f.Kind, f.Key) {
		severity = robocache.SeverityError
	}
	l.list = append(l.list, robocache.Finding{
		Severity: severity, Code: robocache.LackingStream, Where: where,
		Message: fmt.Sprintf("the episode has no %q, but other episodes have it", name),
		Hint:    robocache.LackingHint(),
	})
}

// List returns the findings.
func (l *LackingFindings) List() []robocache.Finding {
	if l.count > maxLacking {
		l.list[maxLacking-1].Count = int64(l.count - maxLacking + 1)
	}
	return l.list
}

// Lacks returns the error of reading rows of a stream that the episode lacks.
func (op Op) Lacks(where robocache.Where) error {
	return robocache.Malformed(
		string(op),
		where,
		"the episode lacks this stream, but other episodes have it",
	).WithHint("%s", robocache.LackingHint())
}
