package edit

import (
	"context"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
)

func todo(what string) {
	guard.Fail(&robocache.Error{Class: robocache.ErrUnsupported, Op: "edit", Msg: what + " is not built yet"})
}

func (e *editor) trim(context.Context, *Verb)  { todo("trim") }
func (e *editor) split(context.Context, *Verb) { todo("split") }
func (e *editor) merge(context.Context, *Verb) { todo("merge") }
func (e *editor) add(context.Context, *Verb)   { todo("add") }
func (e *editor) flagged(context.Context, string, *view) map[int]bool {
	todo("flags")
	return nil
}

type Added struct{}
type column struct {
	dtype robocache.DType
	shape []int
}

func (c *column) kind() robocache.Kind                  { return "" }
func (c *column) gather(*view, []robocache.Row, []byte) {}
func (c *column) texts(*view, []robocache.Row) []string { return nil }
func (a *Added) read(context.Context) (*column, error)  { return nil, nil }

type Where struct{}

func ParseWhere(string) (*Where, error)                 { todo("where"); return nil, nil }
func (w *Where) check(*view)                            {}
func (w *Where) holds(context.Context, *view, int) bool { return false }
