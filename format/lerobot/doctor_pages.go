package lerobot

import (
	"context"
	"errors"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/lerobot/internal/pq"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/store"
)

// pageLimit bounds a page and a dictionary that the doctor proves.
const pageLimit = 256 << 20

// pages proves the columns that nothing here reads: other readers open a file whole, or not at all. Of the tables of the metadata all, of
// the data where the caller wants it deep.
func (doc *doctor) pages(ctx context.Context) {
	d := doc.d
	doc.try(ctx, nil, func() {
		tables, _, err := store.Files(ctx, d.st, "meta", func(name string) bool { return strings.HasSuffix(name, ".parquet") })
		for _, t := range tables {
			doc.columns(ctx, t.Name)
		}
		if !errors.Is(err, robocache.ErrUnsupported) {
			guard.Check(err)
			return
		}
		doc.columns(ctx, tasksParquet) // http: what metadata has by its names
		for _, name := range d.paths.numbered(ctx, "meta/episodes", episodesTemplate, ".parquet") {
			doc.columns(ctx, name)
		}
	})
	for file := range d.tab.files() {
		if doc.opt.Deep && doc.wantsAny(ctx, d.tab.episodesOf(int32(file))) {
			doc.try(ctx, nil, func() { doc.columns(ctx, guard.Must(d.tab.footer(ctx, int32(file))).name) })
		}
	}
}

// columns proves every column of a Parquet file, page by page: one finding a column chunk.
func (doc *doctor) columns(ctx context.Context, name string) {
	where := robocache.Where{"file": name}
	err := guard.Try(func() {
		r := doc.d.openSmall(ctx, name)
		defer r.Close()
		f := guard.Must(pq.Open(ctx, r, nil))
		doc.unreadable(ctx, pq.CheckNames(f), where)
		for g := range f.Groups {
			for _, leaf := range f.Leaves {
				if doc.failed != nil {
					return
				}
				err := pq.Check(ctx, r, f, g, leaf, pq.Limits{Bytes: pageLimit})
				if errors.Is(err, robocache.ErrUnsupported) || errors.Is(err, robocache.ErrResourceLimit) {
					doc.found(robocache.SeverityWarning, "not-examined", robocache.Where{"file": name, "row_group": g, "column": leaf.Name}, "", "%v", err)
				} else {
					doc.unreadable(ctx, err, where)
				}
			}
		}
	})
	if !errors.Is(err, robocache.ErrNotFound) { // else opening has said so, where it is needed
		doc.unreadable(ctx, err, where)
	}
}
