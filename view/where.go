package view

import (
	"github.com/goatnote-inc/robocache/query"
)

// maxRanges bounds the ranges of rows that an expression finds.
const maxRanges = 100_000

// serveWhere answers the positions of the episodes for which an expression is true. An expression
// about rows also answers the ranges that it finds: position, first and last time in seconds.
func (s *Server) serveWhere(q *request) error {
	x, ctx := q.base, q.Context()
	expr, err := query.Parse(q.URL.Query().Get("expr"))
	if err != nil {
		return err
	}
	table, _ := x.quality.current()
	bound, err := expr.Bind(ctx, x.ds, query.Options{Quality: table})
	if err != nil {
		return err
	}
	positions := make([]int, x.info.Episodes)
	for e := range positions {
		positions[e] = e
	}
	var columns [3][]float64
	if bound.IsWhole() {
		matching, err := bound.Matching(ctx, positions)
		if err != nil {
			return err
		}
		for _, e := range matching {
			columns[0] = append(columns[0], float64(e))
		}
		return q.writeBinary(map[string]int{"points": len(columns[0])}, columns[0])
	}
	ranges, err := bound.Find(ctx, positions, maxRanges)
	if err != nil {
		return err
	}
	for _, r := range ranges {
		for k, v := range []float64{float64(r.Position), r.FromS, r.ToS} {
			columns[k] = append(columns[k], v)
		}
	}
	return q.writeBinary(map[string]int{"points": len(ranges)}, columns[:]...)
}
