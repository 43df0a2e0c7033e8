package lerobot

import (
	"context"
	"errors"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/lerobot/internal/pq"
	"github.com/goatnote-inc/robocache/store"
)

// pageLimit bounds a page and a dictionary that the doctor proves.
const pageLimit = 256 << 20

// pages proves the columns that nothing here reads: other readers open a file whole, or not at all. Of the tables of the metadata all, of
// the data where the caller wants it deep.
func (doc *doctor) pages(ctx context.Context) {
	d := doc.d
	tables, _, err := store.Files(ctx, d.st, "meta", func(name string) bool { return strings.HasSuffix(name, ".parquet") })
	var names []string
	for _, t := range tables {
		names = append(names, t.Name)
	}
	if errors.Is(err, robocache.ErrUnsupported) { // http: what metadata has by its names
		names, err = d.paths.numbered(ctx, "meta/episodes", episodesTemplate, ".parquet")
		names = append([]string{tasksParquet}, names...)
	}
	doc.unreadable(ctx, err, nil)
	for _, name := range names {
		doc.columns(ctx, name)
	}
	for file := range d.tab.files() {
		if doc.opt.Deep && doc.wantsAny(ctx, d.tab.episodesOf(int32(file))) {
			if f, err := d.tab.footer(ctx, int32(file)); err != nil {
				doc.unreadable(ctx, err, nil)
			} else {
				doc.columns(ctx, f.name)
			}
		}
	}
}

// columns proves every column of a Parquet file, page by page: one finding a column chunk.
func (doc *doctor) columns(ctx context.Context, name string) {
	where := robocache.Where{"file": name}
	r, err := doc.d.openSmall(ctx, name)
	if errors.Is(err, robocache.ErrNotFound) {
		return // opening has said so, where it is needed
	}
	if err != nil {
		doc.unreadable(ctx, err, where)
		return
	}
	defer r.Close()
	f, err := pq.Open(ctx, r, nil)
	if err != nil {
		doc.unreadable(ctx, err, where)
		return
	}
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
}
