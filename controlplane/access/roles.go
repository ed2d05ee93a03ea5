package access

import (
	"context"
	"fmt"
	"slices"

	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/transport"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// The roles of operators, and those of our own processes.
const (
	RegionOperator  = "region-operator"
	CampaignManager = "campaign-manager"
	SRE             = "sre"
	Viewer          = "viewer"
	Cell            = "cell"
	Edge            = "edge"
	ControlPlane    = "controlplane"
)

// Roles lists the roles that an operator can have.
func Roles() []string { return []string{RegionOperator, CampaignManager, SRE, Viewer} }

var (
	everyOperator = Roles()
	provisioners  = []string{RegionOperator, SRE}
	managers      = []string{CampaignManager}
	quota         = []string{CampaignManager, SRE}
	sre           = []string{SRE}
	// A replica asks the leader what only that knows.
	orReplica = append([]string{ControlPlane}, everyOperator...)
)

// table is role × RPC: who may call each method.
var table = map[string][]string{
	pb.CellAdminService_CreateCell_FullMethodName:    provisioners,
	pb.CellAdminService_GetCell_FullMethodName:       orReplica,
	pb.CellAdminService_ListCells_FullMethodName:     orReplica,
	pb.CellAdminService_GetGate_FullMethodName:       everyOperator,
	pb.CellAdminService_UpdateCell_FullMethodName:    provisioners,
	pb.CellAdminService_CheckCell_FullMethodName:     provisioners,
	pb.CellAdminService_PauseCell_FullMethodName:     provisioners,
	pb.CellAdminService_ResumeCell_FullMethodName:    provisioners,
	pb.CellAdminService_DrainCell_FullMethodName:     provisioners,
	pb.CellAdminService_RetireCell_FullMethodName:    provisioners,
	pb.CellAdminService_RebuildMirror_FullMethodName: provisioners,

	pb.FenceService_FenceCell_FullMethodName:   sre,
	pb.FenceService_ReclaimCell_FullMethodName: sre,
	pb.FenceService_RestoreCell_FullMethodName: sre,

	pb.RecoveryService_RecoverStore_FullMethodName: sre,

	pb.CampaignService_ValidateCampaign_FullMethodName:   everyOperator,
	pb.CampaignService_CreateCampaign_FullMethodName:     managers,
	pb.CampaignService_GetCampaign_FullMethodName:        everyOperator,
	pb.CampaignService_ListCampaigns_FullMethodName:      everyOperator,
	pb.CampaignService_PublishCampaign_FullMethodName:    managers,
	pb.CampaignService_CloseCampaign_FullMethodName:      quota,
	pb.CampaignService_UpdateCampaign_FullMethodName:     managers,
	pb.CampaignService_PreflightCampaign_FullMethodName:  everyOperator,
	pb.CampaignService_PauseCampaign_FullMethodName:      quota,
	pb.CampaignService_ResumeCampaign_FullMethodName:     quota,
	pb.CampaignService_CancelCampaign_FullMethodName:     quota,
	pb.CampaignService_SetSaleLimit_FullMethodName:       managers,
	pb.CampaignService_DrawLottery_FullMethodName:        managers,
	pb.CampaignService_GetLotteryEvidence_FullMethodName: everyOperator,
	pb.CampaignService_AddCell_FullMethodName:            managers,
	pb.CampaignService_DeleteCampaign_FullMethodName:     managers,

	pb.QuotaService_PreviewSplit_FullMethodName:    orReplica,
	pb.QuotaService_ListAllocations_FullMethodName: everyOperator,
	pb.QuotaService_TopUp_FullMethodName:           quota,
	pb.QuotaService_ReturnUnits_FullMethodName:     quota,
	pb.QuotaService_TransferUnits_FullMethodName:   quota,
	pb.QuotaService_PlanRebalance_FullMethodName:   orReplica,
	pb.QuotaService_ApplyRebalance_FullMethodName:  quota,
	pb.QuotaService_ListAdjustments_FullMethodName: everyOperator,

	pb.RoutingService_WatchRoutes_FullMethodName:     {Edge},
	pb.RoutingService_LookupHome_FullMethodName:      append([]string{Edge}, everyOperator...),
	pb.RoutingService_GetRoute_FullMethodName:        everyOperator,
	pb.RoutingService_HandOverBuckets_FullMethodName: provisioners,

	pb.OperationService_List_FullMethodName:  everyOperator,
	pb.OperationService_Get_FullMethodName:   everyOperator,
	pb.OperationService_Wait_FullMethodName:  everyOperator,
	pb.OperationService_Abort_FullMethodName: quota,

	pb.ReportService_GetStatus_FullMethodName:         orReplica,
	pb.ReportService_Verify_FullMethodName:            everyOperator,
	pb.ReportService_Trace_FullMethodName:             everyOperator,
	pb.ReportService_GetOrder_FullMethodName:          everyOperator,
	pb.ReportService_ResolveRequests_FullMethodName:   everyOperator,
	pb.ReportService_GetSales_FullMethodName:          everyOperator,
	pb.ReportService_GetUndersell_FullMethodName:      everyOperator,
	pb.ReportService_GetCampaignReport_FullMethodName: everyOperator,
	pb.ReportService_ListAuditEvents_FullMethodName:   everyOperator,

	pb.ReconcileService_ListFindings_FullMethodName:  everyOperator,
	pb.ReconcileService_GetFinding_FullMethodName:    everyOperator,
	pb.ReconcileService_RunReconcile_FullMethodName:  quota,
	pb.ReconcileService_RepairFinding_FullMethodName: sre,

	pb.AccessService_CreateToken_FullMethodName:   sre,
	pb.AccessService_ListTokens_FullMethodName:    sre,
	pb.AccessService_RevokeToken_FullMethodName:   sre,
	pb.AccessService_ListKeys_FullMethodName:      orReplica,
	pb.AccessService_RotateKey_FullMethodName:     sre,
	pb.AccessService_RevokeKey_FullMethodName:     sre,
	pb.AccessService_ListApprovals_FullMethodName: everyOperator,
	pb.AccessService_Approve_FullMethodName:       quota,
	pb.AccessService_Reject_FullMethodName:        quota,

	// Of the cells' service a replica serves these calls alone, for operators.
	pb.OrderService_RefundOrder_FullMethodName:        quota,
	pb.OrderService_ReleaseReservation_FullMethodName: sre,
	pb.OrderService_ReturnAdmission_FullMethodName:    sre,

	pb.CellLinkService_Link_FullMethodName: {Cell},
}

// Authorize is the table as an authoriser of internal/transport.
func Authorize(_ context.Context, p transport.Principal, method string) error {
	if slices.Contains(table[method], p.Role) {
		return nil
	}
	return rpcstatus.With(fmt.Errorf("%w: role %s may not call %s", rpcstatus.ErrPermissionDenied, p.Role, method),
		map[string]string{"role": p.Role, "method": method}, nil, 0)
}

// Region refuses a region-operator what lies outside its regions.
func Region(ctx context.Context, region string) error {
	p, ok := transport.PrincipalFrom(ctx)
	if !ok {
		return rpcstatus.ErrUnauthenticated
	}
	if p.Role != RegionOperator || slices.Contains(p.Regions, region) {
		return nil
	}
	return rpcstatus.With(fmt.Errorf("%w: %s operates %v, not region %s", rpcstatus.ErrPermissionDenied, p.Name, p.Regions, region),
		map[string]string{"region": region}, nil, 0)
}

// Name gives who calls, for records; "unknown" outside a call.
func Name(ctx context.Context) string {
	if p, ok := transport.PrincipalFrom(ctx); ok {
		return p.Name
	}
	return "unknown"
}
