package view

const (
	frameBudget    = 48 << 20 // JPEGs that were made
	timelineBudget = 64 << 20 // timestamps of the episodes that were looked at last
	decoderBudget  = 96 << 20 // idle decoders
	maxCloud       = 200_000  // points of a cloud
	maxTexts       = 2000     // rows of texts in one answer
	maxBody        = 1 << 20  // of a request
	maxCameras     = 4096     // that are remembered
	maxViews       = 4        // alignments that are kept
	framesAhead    = 12       // rows decoded beside the one that was asked for
	doctorRows     = 500_000  // a dataset of more rows is diagnosed when somebody asks
)
